"""YAML that others read by 1.1 or by 1.2: texts stay texts, numbers stay numbers."""

import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from ledger import Store
from marin.export.quoting import yaml_of
from marin.plugins.sharing.dvc import write_dvc
from marin.record.events import Output
from tests.ledger.memory import MemoryStorage

# The md5 of its bytes is 401013266745e5661589292315434968: digits and one "e", a number of YAML 1.2.
OF_DIGITS = b"46793"
NUMBERS = st.integers() | st.floats(allow_nan=False) | st.booleans()


@given(
    st.dictionaries(
        st.text("0123456789eE+-._oxabf:") | st.text(), st.text("0123456789eE+-._oxabf:") | st.text() | NUMBERS
    )
)
@example({"md5": "401013266745e5661589292315434968", "1e3": "0o17", "on": "12:30", "-.5": ".5"})
@example({"-_": "+_"})
@example({"a": 1e16, "b": 1e-5, "c": 5, "d": -0.5, "e": True})
def test_readers_of_both_versions_read_what_was_written(document):
    text = yaml_of(document)
    for read in (yaml.safe_load, YAML(typ="safe", pure=True).load):
        assert repr(read(text)) == repr(document), text


def test_a_digest_that_looks_like_a_number_is_a_text_to_dvc(tmp_path):
    from dvc.utils.serialize import load_yaml

    store = Store(MemoryStorage())
    stored = store.put_bytes(OF_DIGITS)
    output = Output(kind="value", digest=stored.digest, size=stored.size, artifact=stored.digest)
    (path,) = write_dvc(store, {"value": output}, tmp_path / "dvc")
    assert load_yaml(path)["outs"] == [
        {"md5": "401013266745e5661589292315434968", "size": 5, "hash": "md5", "path": "value"}
    ]
