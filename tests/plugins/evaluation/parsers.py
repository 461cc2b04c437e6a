"""Parsers of foreign bytes of this plugin, which tests/fuzz tries."""

from marin.plugins.evaluation.babylm.tasks import read as read_babylm
from marin.plugins.evaluation.recorded.records import read_groups, read_samples, read_task, wrong_groups
from tests.fuzz.parsers import Parser, given, on_file

PARSERS = [
    Parser(
        "stored samples",
        on_file(lambda folder: list(read_samples(folder, "t")), "samples/t.jsonl"),
        given(b'{"doc":0,"doc_hash":"a","target":1,"requests":[],"outcomes":[]}\n' * 2),
        ("marin.plugins.evaluation.recorded.records.read_samples",),
    ),
    Parser(
        "stored task",
        on_file(lambda folder: read_task(folder, "t", ()), "tasks/t.json"),
        given(
            b'{"task":"t","output_type":"multiple_choice","doc_to_text":"{{q}}","doc_to_target":0,"doc_to_choice":["a"]}'
        ),
        ("marin.plugins.evaluation.recorded.records.read_task",),
    ),
    Parser(
        "stored groups",
        on_file(lambda folder: wrong_groups(read_groups(folder) or [], ["t"]), "./groups.json"),
        given(b'[{"name":"g","tasks":["t"],"metrics":[{"metric":"acc","weight_by_size":true,"filters":["none"]}]}]'),
        ("marin.plugins.evaluation.recorded.records.read_groups",),
    ),
    Parser(
        "minimal pairs of BabyLM",
        on_file(read_babylm, "blimp_filtered/x.jsonl"),
        given(b'{"sentence_good":"a b","sentence_bad":"b a","UID":"x","field":"f","linguistics_term":"t"}\n'),
        ("marin.plugins.evaluation.babylm.tasks.read",),
    ),
    Parser(
        "reading times of BabyLM",
        on_file(read_babylm, "reading/reading_data.csv"),
        given(b"word,prev_word,item,sentence\na,b,1,a b c\n"),
    ),
    Parser("words of BabyLM", on_file(read_babylm, "aoa/cdi_childes.json"), given(b'{"dog":[{"context":"a dog"}]}')),
]
