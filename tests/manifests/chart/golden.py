"""Write the golden renderings of the chart: `python -m tests.manifests.chart.golden`."""

from __future__ import annotations

import yaml

from tests.manifests.chart.test_chart import FOLDER, GOLDEN, golden

if __name__ == "__main__":
    for name, values in GOLDEN.items():
        text = yaml.safe_dump_all(golden(values), sort_keys=False, width=110)
        (FOLDER / "golden" / f"{name}.yaml").write_text(text)
