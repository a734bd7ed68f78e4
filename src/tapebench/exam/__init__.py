"""How anyone is measured: policies, episodes, exams, scores, and bundles that replay."""
