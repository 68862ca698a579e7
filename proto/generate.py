"""Generate the Python stubs of the wire contract into muster/v1 (run it after each change of a .proto).

`python proto/generate.py --check` changes nothing and exits 1 when the committed stubs differ from what the contract
gives. The generator is pinned in pyproject.toml: stubs demand protobuf and grpcio at least as new as itself.
"""

from __future__ import annotations

import filecmp
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"


def generate(out: Path) -> None:
    """Write the stubs below `out`; raises CalledProcessError when the contract does not compile."""
    files = sorted(str(path.relative_to(PROTO)) for path in PROTO.glob("muster/v1/*.proto"))
    bin_dir = Path(sys.executable).parent
    subprocess.run(
        [
            sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO}",
            f"--plugin=protoc-gen-mypy={bin_dir / 'protoc-gen-mypy'}",
            f"--plugin=protoc-gen-mypy_grpc={bin_dir / 'protoc-gen-mypy_grpc'}",
            f"--python_out={out}", f"--grpc_python_out={out}", f"--mypy_out={out}", f"--mypy_grpc_out={out}", *files,
        ],
        check=True,
        cwd=PROTO,
    )  # fmt: skip
    (out / "muster" / "v1" / "__init__.py").write_text(
        '"""Generated stubs of the wire contract (proto/generate.py)."""\n'
    )


def main(argv: list[str]) -> int:
    """Generate, or with --check compare."""
    if argv != ["--check"]:
        generate(ROOT)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        generate(fresh)
        names = sorted(path.name for path in (fresh / "muster" / "v1").iterdir())
        _, differing, missing = filecmp.cmpfiles(fresh / "muster" / "v1", ROOT / "muster" / "v1", names, shallow=False)
        for name in [*differing, *missing]:
            print(f"muster/v1/{name} differs from what proto/ gives: run python proto/generate.py", file=sys.stderr)
        return 1 if differing or missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
