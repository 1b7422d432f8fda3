"""The bill of materials of a variant, in CycloneDX's JSON: what went in, each with a hash.

It stands in the variant and is part of its digest, so it holds nothing of the machine: no date, no
path, no user.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kernelmill.cache.key import digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kernelmill.package.metadata import Metadata

__all__ = ["FILE", "Part", "bill_of_materials"]

FILE: Final = "sbom.cdx.json"
_NAMESPACE: Final = uuid.UUID("6f0a7c2e-6c1c-5d53-9a55-1f4f4f2b8f10")


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """Something that went in: a "file", an "application" (a compiler), a "library" (headers)."""

    kind: str
    name: str
    version: str = ""
    sha256: str = ""
    note: str = ""

    def to_json(self) -> dict[str, Any]:  # Any: JSON
        """Return the component."""
        made: dict[str, Any] = {"type": self.kind, "name": self.name}
        if self.version:
            made["version"] = self.version
        if self.sha256:
            made["hashes"] = [{"alg": "SHA-256", "content": self.sha256}]
        if self.note:
            made["description"] = self.note
        made["bom-ref"] = ":".join(filter(None, (self.kind, self.name, self.version)))
        return made


def bill_of_materials(metadata: Metadata, parts: Iterable[Part], tool: Mapping[str, str]) -> str:
    """Return the document's text; the same parts give the same bytes.

    Examples
    --------
    >>> from kernelmill.package.metadata import Metadata
    >>> from kernelmill.package.sbom import Part, bill_of_materials
    >>> m = Metadata(name="relu", id="_relu_cpu_1", version=1, license="MIT", backend="cpu")
    >>> source = Part("file", "csrc/relu.cpp", sha256="00" * 32)
    >>> text = bill_of_materials(m, [source], {"name": "kernelmill"})
    >>> '"bomFormat": "CycloneDX"' in text
    True
    """
    components = [part.to_json() for part in sorted(set(parts))]
    kernel = {
        "type": "library",
        "name": metadata.name,
        "version": metadata.semantic_version or str(metadata.version),
        "bom-ref": metadata.id,
        "licenses": [{"license": {"id": metadata.license}}],
    }
    serial = uuid.uuid5(_NAMESPACE, digest(id=metadata.id, components=json.dumps(components)))
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "component": kernel,
            "tools": {"components": [{"type": "application", **tool}]},
        },
        "components": components,
        "dependencies": [
            {"ref": metadata.id, "dependsOn": [component["bom-ref"] for component in components]}
        ],
    }
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
