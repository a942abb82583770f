from pathlib import Path

import pyarrow.parquet as parquet


def pytest_neaptide_workloads():
    return {"orders": "shop.load:ORDERS"}


def pytest_neaptide_check(run: Path):
    """Every order of the load has a customer."""
    for file in sorted((run / "operations").glob("**/*.parquet")):
        for row in parquet.read_table(file, columns=["f", "key", "value"]).to_pylist():
            if row["f"] == "send" and "-order-" in (row["value"] or "") and not row["key"]:
                yield f"{row['value']} has no customer."
