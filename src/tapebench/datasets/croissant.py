"""What a dataset is, for machines: Croissant 1.0, with the fields for responsible AI."""

from __future__ import annotations

from typing import Any

from tapebench.datasets.collect import ABOUT, COLUMNS
from tapebench.datasets.manifest import Manifest
from tapebench.datasets.spec import VERSION

_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}

_TYPES = {"b": "sc:Boolean", "u": "sc:Integer", "i": "sc:Integer", "f": "sc:Float"}
"""By NumPy's kind of a column."""

PUBLISHED = "2026-11-20"
"""The day of this version of the content."""


def describe(manifest: Manifest) -> dict[str, Any]:
    """The JSON-LD document. It follows from the dataset alone, so it is checked like the rest."""
    spec = manifest.spec
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "name": spec.id.replace("/", "-"),
        "alternateName": spec.id,
        "description": (
            f"{spec.episodes:,} episodes ({manifest.steps:,} steps) of {spec.plays.about}, in "
            f"TAPE: a ring of {spec.length} binary cells, one of which is flipped in each of "
            f"{spec.horizon} steps before a hidden elementary cellular automaton updates them all; "
            f"the goal is the tape of zeros. Rules are those that the split {spec.split.name} "
            "trains on. Every step carries the optimal cells, the fewest steps to the goal and the "
            "entropy of the exact posterior over rules."
        ),
        "conformsTo": [
            "http://mlcommons.org/croissant/1.0",
            "http://mlcommons.org/croissant/RAI/1.0",
        ],
        "citeAs": (
            "E. Pan. TAPE: A Cellular Automata Benchmark for Evaluating Rule-Shift Generalization "
            "in Reinforcement Learning."
        ),
        "creator": {"@type": "sc:Organization", "name": "The tapebench authors"},
        "datePublished": PUBLISHED,
        "inLanguage": "en",
        "isLiveDataset": False,
        "keywords": ["offline reinforcement learning", "in-context learning", "cellular automata"],
        "license": "https://spdx.org/licenses/MIT.html",
        "url": f"urn:sha256:{manifest.content}",
        "version": f"{VERSION}.0.0",
        "rai:dataCollection": (
            f"Simulated: {spec.plays.about}, with seed {spec.seed}. Nothing was filtered; `tape "
            "data make` gives the same data again."
        ),
        "rai:dataCollectionType": "Software Collection",
        "rai:dataAnnotationProtocol": (
            "Labels are computed, not annotated: optimal cells and steps by exhaustive search "
            "backwards from the goal, entropies by exact inference from a uniform prior over the "
            "training rules."
        ),
        "rai:dataUseCases": (
            "Training of agents from data, in-context reinforcement learning, tests of inference."
        ),
        "rai:dataLimitations": (
            "A small synthetic world. `rule`, `optimal_cells`, `optimal_steps` and `entropy` are "
            "labels that an agent under test must not observe."
        ),
        "rai:dataBiases": (
            "Rules and start tapes are uniform, so transitions of rules that end episodes early "
            f"are fewer. The {len(spec.split.test)} held-out rules of the split never occur."
        ),
        "rai:dataSocialImpact": "None is known: it describes no people.",
        "rai:personalSensitiveInformation": "None.",
        "distribution": [
            *(
                {
                    "@type": "cr:FileObject",
                    "@id": table.name,
                    "name": table.name,
                    "contentUrl": table.name,
                    "contentSize": f"{table.size} B",
                    "encodingFormat": "application/x-parquet",
                    "sha256": table.sha256,
                }
                for table in manifest.tables
            ),
            {
                "@type": "cr:FileSet",
                "@id": "steps-files",
                "name": "steps-files",
                "encodingFormat": "application/x-parquet",
                "includes": "steps-*.parquet",
            },
        ],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": "steps",
                "name": "steps",
                "description": "A record per step, in the order in which they were taken.",
                "field": [
                    {
                        "@type": "cr:Field",
                        "@id": f"steps/{name}",
                        "name": name,
                        "description": ABOUT[name],
                        "dataType": _TYPES[kind.kind],
                        "source": {
                            "fileSet": {"@id": "steps-files"},
                            "extract": {"column": name},
                        },
                    }
                    for name, kind in COLUMNS.items()
                ],
            }
        ],
    }
