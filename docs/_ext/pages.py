"""The reference in the site: pages are written, types lead to theirs, names to code."""

import public
import reference
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", lambda _: reference.write())
    app.connect("doctree-read", _link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _link(app: Sphinx, document: nodes.document) -> None:
    """Types in signatures lead to where the reference has them; others are plain.

    Their short names mean what they mean in the file that the signature is from.
    """
    for signature in list(document.findall(addnodes.desc_signature)):
        module = signature.get("module")
        if module not in public.modules():
            continue
        name = public.found(module, signature["fullname"].split(".")[0])
        if name is not None and "." not in signature["fullname"]:
            signature.append(_source_of(name))
        for mention in list(signature.findall(addnodes.pending_xref)):
            target = public.found(name.home, mention["reftarget"]) if name else None
            address = public.addresses().get(public.full(target)) if target else None
            if address is None:
                mention.replace_self(mention.children)
            else:
                mention["reftarget"] = address


def _source_of(name: public.Name) -> addnodes.only:
    """A link to the code of a name, in pages of HTML."""
    text = nodes.inline("", "[source]", classes=["viewcode-link"])
    link = nodes.reference("", "", text, internal=False, refuri=reference.source(name))
    return addnodes.only("", link, expr="html")
