"""The metadata says what is there; `make croissant` has mlcroissant read it."""

import json

import duckdb

from tapebench.base import files
from tapebench.datasets.collect import COLUMNS


def test_the_metadata_names_every_file_with_its_hash_and_every_column(optimal):
    document = json.loads((optimal / "croissant.json").read_text())
    listed = [entry for entry in document["distribution"] if entry["@type"] == "cr:FileObject"]
    assert [entry["contentUrl"] for entry in listed] == sorted(
        file.name for file in optimal.glob("*.parquet")
    )
    for entry in listed:
        assert entry["sha256"] == files.file_hash(optimal / entry["contentUrl"])
        assert entry["contentSize"] == f"{(optimal / entry['contentUrl']).stat().st_size} B"
    (records,) = document["recordSet"]
    extracted = [field["source"]["extract"]["column"] for field in records["field"]]
    in_files = duckdb.sql(f"describe select * from '{optimal}/*.parquet'").fetchall()
    assert extracted == [name for name, *_ in in_files] == list(COLUMNS)
    assert {key for key in document if key.startswith("rai:")} >= {
        "rai:dataCollection",
        "rai:dataBiases",
        "rai:dataLimitations",
        "rai:personalSensitiveInformation",
    }
