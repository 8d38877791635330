"""`params.yaml`: which benchmarks, systems and runs there are, validated so that an error names the key."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from cairn.errors import ParameterError
from cairn.validation import hint, shown, validated

IDENTIFIER = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
SECTIONS = ("benchmarks", "systems", "runs")
RUN_KEYS = ("benchmark", "system")
# Keys of a benchmark that every adapter shares; the others belong to the adapter.
BENCHMARK_KEYS = ("adapter", "training", "metric", "tail", "contamination")
# Keys of a system that do not belong to its encoder.
SYSTEM_KEYS = ("encoder", "uncropped_queries", "readout", "search", "rerank", "training_set", "heads")
# Names that would collide with the folders of artifacts.
RESERVED = {
    "benchmarks": ("code", "results", "scores", "heads"),
    "systems": ("sources", "manifest", "ground-truth", "training", "contamination"),
    "runs": ("all",),
}
LONGEST_NAME = 64


@dataclass(frozen=True)
class Parameters:
    """The whole of `params.yaml`, with every default filled in.

    `benchmarks[name]` has `adapter`, `training`, `metric`, `tail`, `contamination`, `settings` (the adapter's own
    keys), and `training_adapter` and `training_settings` of the benchmark whose training images are used;
    `systems[name]` has `encoder`, `settings` (the encoder's own keys), `learning` and `features` (the parts of
    them that decide what is learned from training images, and which local features there are), `search`,
    `rerank`, `local`, `mixing` and `reranker_training` (what each step needs to know of the second stage: see
    `cairn.rerank.parameters.parts`), `training_set` (which training images it learns from), `readout` and `heads`
    (None without), `uncropped_queries` (whether it is a control outside the protocol), `training_descriptors`
    (whether something of the system learns on descriptors of training images) and `described_set` (which training
    images those are);
    `runs[name]` has `benchmark` and `system`. `implied` are the benchmarks known by name (`roxford5k`, see
    `cairn.benchmarks.known`) whose entry is missing, or leaves out what the name stands for.
    """

    benchmarks: Mapping[str, Mapping[str, Any]]
    systems: Mapping[str, Mapping[str, Any]]
    runs: Mapping[str, Mapping[str, str]]
    implied: frozenset[str] = frozenset()


def read_yaml(path: Path) -> dict[str, Any]:
    """The raw mapping in `params.yaml`; a repeated key is an error, not a silent overwrite."""
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    def mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
        seen: dict[Any, int] = {}
        for key_node, _ in node.value:
            key = loader.construct_object(key_node)
            line = key_node.start_mark.line + 1
            if not isinstance(key, str):
                raise ParameterError(
                    f"{path.name} line {line}: the key {key!r} is not text; quote it if it is meant as a name"
                )
            if key in seen:
                raise ParameterError(
                    f"{path.name} line {line}: {key!r} appears twice in one mapping (first on line {seen[key]}); "
                    "keep one of them"
                )
            seen[key] = line
        return loader.construct_mapping(node, deep=True)

    Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    try:
        value = yaml.load(path.read_text("utf-8"), Loader=Loader)  # noqa: S506 - a SafeLoader with one more check
    except FileNotFoundError:
        raise ParameterError(
            f"{path} does not exist; run this in a Cairn project, where params.yaml stands"
        ) from None
    except RecursionError:
        raise ParameterError(f"{path.name}: nested far too deeply to be parameters") from None
    except UnicodeDecodeError as error:
        raise ParameterError(
            f"{path.name}: byte {error.start} is not UTF-8; save the file as UTF-8"
        ) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ParameterError(f"{path.name}{where}: not valid YAML: {problem}") from None
    if not isinstance(value, dict):
        raise ParameterError(
            f"{path.name}: a mapping with the keys {', '.join(SECTIONS)} is expected at the top"
        )
    return value


def load_parameters(path: Path) -> Parameters:
    """Read and validate `params.yaml`.

    Raises `ParameterError` naming the dotted key, its value and what is allowed.
    """
    raw = read_yaml(path)
    _only(raw, SECTIONS, path.name, "")
    sections: dict[str, dict[str, Any]] = {}
    for section in SECTIONS:
        entries = raw.get(section)
        entries = {} if entries is None else entries
        if not isinstance(entries, dict):
            raise ParameterError(f"{path.name}: {section} must map names to settings, not {shown(entries)}")
        for name, entry in entries.items():
            identifier(name, f"{path.name}: {section}")
            if name in RESERVED[section]:
                taken = ", ".join(RESERVED[section])
                raise ParameterError(
                    f"{path.name}: {section}.{name}: the name is taken by Cairn's own folders ({taken}); choose another"
                )
            if not isinstance(entry, dict) and not (entry is None and section == "benchmarks"):
                raise ParameterError(f"{path.name}: {section}.{name} must be a mapping, not {shown(entry)}")
        sections[section] = entries
    file = path.name
    entries, implied = _with_known(sections["benchmarks"], sections["runs"])
    benchmarks = {name: _benchmark(name, entry, file) for name, entry in entries.items()}
    for name, entry in benchmarks.items():
        _one_of(entry["training"], benchmarks, f"{file}: benchmarks.{name}.training", "benchmark")
        source = benchmarks[entry["training"]]
        entry |= {"training_adapter": source["adapter"], "training_settings": source["settings"]}
    systems = {name: _system(name, entry, file) for name, entry in sections["systems"].items()}
    runs = {name: _run(name, entry, benchmarks, systems, file) for name, entry in sections["runs"].items()}
    seen: dict[tuple[str, str], str] = {}
    for name, run in runs.items():
        pair = (run["benchmark"], run["system"])
        if pair in seen:
            raise ParameterError(
                f"{file}: runs.{name} repeats runs.{seen[pair]} (both are {pair[0]} with {pair[1]}); remove one"
            )
        seen[pair] = name
    _check_selections(benchmarks, systems, seen, file)
    return Parameters(benchmarks, systems, runs, implied)


def _with_known(
    entries: Mapping[str, Any], runs: Mapping[str, Any]
) -> tuple[dict[str, dict[str, Any]], frozenset[str]]:
    """The benchmarks' entries where those known by name are filled in, and the names of these.

    Filled in are entries without `adapter` (`roxford5k: {}`), what an entry leaves out, and known benchmarks that
    runs name and `benchmarks` does not list. Systems learn on toytown's images where it is listed, as they do for a
    folder, else on the benchmark's own.
    """
    from cairn.benchmarks.known import entry_of

    asked = (run.get("benchmark") for run in runs.values())
    named = [name for name in asked if isinstance(name, str) and name not in entries]
    filled: dict[str, dict[str, Any]] = {}
    implied = set()
    for name, entry in {**entries, **dict.fromkeys(named)}.items():
        entry = entry or {}
        known = entry_of(name)
        if known is not None and ("adapter" not in entry or "training" not in entry):
            own_images = "toytown" not in entries or entry.get("training_images") is True
            fallback = {"training": name if own_images else "toytown"}
            if entry.get("adapter", known["adapter"]) == known["adapter"]:
                entry = {**fallback, **known, **entry}
                implied.add(name)
        if entry or name in entries:
            filled[name] = entry
    return filled, frozenset(implied)


def identifier(name: str, where: str) -> str:
    """`name` where it can be used as a key by both engines and as a folder, else `ParameterError`."""
    import yaml

    if not IDENTIFIER.fullmatch(name):
        suggestion = "-".join(re.findall(r"[a-z0-9]+", name.lower()))[:LONGEST_NAME]
        would_do = f"; {suggestion!r} would do" if suggestion else ""
        raise ParameterError(
            f"{where}: the name {shown(name)} is not allowed: lower-case letters, digits and single hyphens "
            f"only{would_do}"
        )
    if len(name) > LONGEST_NAME:
        raise ParameterError(
            f"{where}: the name {shown(name)} is too long: {LONGEST_NAME} characters at most"
        )
    if yaml.safe_load(name) != name:
        raise ParameterError(
            f"{where}: YAML does not read the name {name!r} as text (but as {yaml.safe_load(name)!r}); choose another"
        )
    return name


def validate(model: type[BaseModel], values: Any, where: str) -> dict[str, Any]:
    """`values` checked by a pydantic model, defaults filled in, as plain JSON types."""
    return validated(model, values, where).model_dump(mode="json")


def _benchmark(name: str, entry: Mapping[str, Any], file: str) -> dict[str, Any]:
    from cairn.benchmarks.adapters import load_adapter
    from cairn.contamination.parameters import ContaminationParameters

    where = f"{file}: benchmarks.{name}"
    adapter = load_adapter(_required(entry, "adapter", where), f"{where}.adapter")
    own = {key: value for key, value in entry.items() if key not in BENCHMARK_KEYS}
    try:
        settings = validate(adapter.Parameters, own, where)
    except ParameterError as error:
        raise ParameterError(_with_common(str(error), where, BENCHMARK_KEYS)) from None
    training = _required(entry, "training", where)
    metric = entry.get("metric", adapter.METRIC)
    check_metric(metric, f"{where}.metric")
    tail = None
    if entry.get("tail") is not None:
        from cairn.systems.tail import TailParameters

        tail = validate(TailParameters, entry["tail"], f"{where}.tail")
    return {
        "adapter": entry["adapter"],
        "training": training,
        "metric": metric,
        "tail": tail,
        "contamination": validate(
            ContaminationParameters, entry.get("contamination", {}), f"{where}.contamination"
        ),
        "settings": settings,
    }


def check_metric(metric: Any, where: str) -> str:
    """`metric` in the names that numbers have (`micro-AP` is `micro-ap`).

    `ParameterError` where it is not a protocol that a ranking can be scored with.
    """
    from cairn.metrics.evaluate import parse_protocol

    if not isinstance(metric, str):
        raise ParameterError(f"{where} = {shown(metric)}: the name of a metric is expected")
    try:
        return ",".join(each.name for each in parse_protocol(metric))
    except ParameterError as error:
        raise ParameterError(f"{where}: {error}") from None


def _system(name: str, entry: Mapping[str, Any], file: str) -> dict[str, Any]:
    from cairn.encoders import (
        check_factory,
        checked_parameters,
        is_sparse,
        learning_keys,
        load_encoder_module,
    )
    from cairn.readout import ReadoutParameters
    from cairn.rerank import RerankParameters, parts
    from cairn.search import SearchParameters

    where = f"{file}: systems.{name}"
    encoder = _required(entry, "encoder", where)
    try:
        module = load_encoder_module(encoder)
        check_factory(encoder, module)
    except ParameterError as error:
        raise ParameterError(f"{where}.encoder: {error}") from None
    own = {key: value for key, value in entry.items() if key not in SYSTEM_KEYS}
    try:
        settings = checked_parameters(encoder, module, own, where)
    except ParameterError as error:
        raise ParameterError(_with_common(str(error), where, SYSTEM_KEYS)) from None
    rerank = parts(validated(RerankParameters, entry.get("rerank", {}), f"{where}.rerank"), f"{where}.rerank")
    _local_features(encoder, rerank["local"], f"{where}.rerank")
    heads = None
    if entry.get("heads") is not None:
        from cairn.heads.parameters import HeadsParameters

        heads = validate(HeadsParameters, entry["heads"], f"{where}.heads")
    from cairn.contamination.parameters import TRAINING_SETS

    training_set = entry.get("training_set", TRAINING_SETS[0])
    if not isinstance(training_set, str) or training_set not in TRAINING_SETS:
        raise ParameterError(
            f"{where}.training_set = {shown(training_set)}: expected one of {', '.join(TRAINING_SETS)}"
        )
    if heads and entry.get("readout") is not None and training_set != "all":
        raise ParameterError(
            f"{where}.readout: with heads beside it, it would learn from all training images and not from "
            f"{training_set}; give heads and read-out a system each"
        )
    search = validate(SearchParameters, entry.get("search", {}), f"{where}.search")
    readout = None
    if entry.get("readout") is not None:
        readout = validate(ReadoutParameters, entry["readout"], f"{where}.readout")
    if is_sparse(encoder):
        _only_dense(entry, search, f"{where}")
    uncropped = entry.get("uncropped_queries", False)
    if not isinstance(uncropped, bool):
        raise ParameterError(f"{where}.uncropped_queries = {shown(uncropped)}: true or false is expected")
    later = ["rerank"] if entry.get("rerank", {}).get("method", "none") != "none" else []
    later += ["heads"] if heads is not None else []
    if uncropped and later:
        raise ParameterError(
            f"{where}.uncropped_queries: queries that are not cropped are a control outside the protocol, to which "
            f"nothing is added; remove {later[0]}"
        )
    if heads is not None and search["normalisation"] is not None:
        raise ParameterError(
            f"{where}.search.normalisation: training images are described before the heads, so scores of heads cannot "
            "be normalised by them; remove heads or normalisation"
        )
    learns = readout is not None and ReadoutParameters(**readout).source == "training"
    return {
        "encoder": encoder,
        "settings": settings,
        "learning": {key: settings[key] for key in learning_keys(module, settings)},
        "uncropped_queries": uncropped,
        "readout": readout,
        "search": search,
        **rerank,
        "training_set": training_set,
        "heads": heads,
        "training_descriptors": heads is not None
        or rerank["reranker_training"] is not None
        or learns
        or search["normalisation"] is not None,
        # Heads have training sets of their own; whatever else learns on descriptors keeps to the system's.
        "described_set": "all" if heads else training_set,
    }


def _local_features(encoder: str, local: Mapping[str, Any], where: str) -> None:
    """ParameterError where the second stage looks at local features of an encoder that has none."""
    from cairn.encoders import has_local_features, known_encoders
    from cairn.rerank import local_source

    method = local["method"]
    if method == "none" or local_source(local) != "encoder" or has_local_features(encoder):
        return
    source = "geometry: {local: xfeat}" if method == "geometry" else "ames: {checkpoint: …, dinov2: …}"
    others = " or ".join(name for name in known_encoders() if has_local_features(name))
    raise ParameterError(
        f"{where}.method = {method!r}: the encoder {encoder} has no local features; add `{source}`, or take an "
        f"encoder that has some ({others})"
    )


def _only_dense(entry: Mapping[str, Any], search: Mapping[str, Any], where: str) -> None:
    """ParameterError where something needs dense descriptors, of a system whose descriptors are sparse."""
    from cairn.rerank.parameters import BY_DESCRIPTORS

    options = [
        f"search.{key}" for key in ("augmentation", "expansion", "normalisation") if search[key] is not None
    ]
    asked = [key for key in ("readout", "heads") if entry.get(key) is not None] + options
    rerank = entry.get("rerank", {})
    if rerank.get("method") in BY_DESCRIPTORS or rerank.get("after") is not None:
        asked.append("rerank" if rerank.get("after") is None else "rerank.after")
    if asked:
        raise ParameterError(
            f"{where}.{asked[0]}: descriptors of {entry['encoder']} are sparse, and this needs dense ones; remove it"
        )
    kind = search["index"]["kind"]
    if kind not in ("flat", "none"):
        raise ParameterError(
            f"{where}.search.index.kind = {kind!r}: sparse descriptors have an inverted file; allowed: flat (which "
            "writes it), none"
        )


def _run(
    name: str, entry: Mapping[str, Any], benchmarks: Mapping[str, Any], systems: Mapping[str, Any], file: str
) -> dict[str, str]:
    where = f"{file}: runs.{name}"
    _only(entry, RUN_KEYS, file, f"runs.{name}.")
    benchmark, system = _required(entry, "benchmark", where), _required(entry, "system", where)
    _one_of(benchmark, benchmarks, f"{where}.benchmark", "benchmark")
    _one_of(system, systems, f"{where}.system", "system")
    return {"benchmark": benchmark, "system": system}


def _check_selections(
    benchmarks: Mapping[str, Any], systems: Mapping[str, Any], pairs: Mapping[tuple[str, str], str], file: str
) -> None:
    """Epochs of a head are selected on descriptors that some run makes."""
    for name, system in systems.items():
        selection = (system["heads"] or {}).get("selection")
        if not selection or not selection["benchmark"]:
            continue
        where = f"{file}: systems.{name}.heads.selection.benchmark"
        _one_of(selection["benchmark"], benchmarks, where, "benchmark")
        if (selection["benchmark"], name) not in pairs:
            raise ParameterError(
                f"{where} = {selection['benchmark']!r}: no run pairs it with {name}; add one, which makes the "
                "descriptors that epochs are selected on"
            )


def _required(entry: Mapping[str, Any], key: str, where: str) -> str:
    if key not in entry:
        raise ParameterError(f"{where}.{key} is missing; it has no default")
    value = entry[key]
    if not isinstance(value, str):
        raise ParameterError(f"{where}.{key} = {shown(value)}: text is expected")
    return value


def _only(entry: Mapping[str, Any], allowed: tuple[str, ...], file: str, prefix: str) -> None:
    for key in entry:
        if key not in allowed:
            raise ParameterError(
                f"{file}: {prefix}{key} is not a known key{hint(key, allowed)}; allowed: {', '.join(allowed)}"
            )


def _one_of(value: str, allowed: Mapping[str, Any], where: str, kind: str) -> None:
    if value not in allowed:
        names = ", ".join(allowed) or "none yet"
        raise ParameterError(f"{where} = {value!r}: no such {kind}{hint(value, allowed)}; there are: {names}")


def _with_common(message: str, where: str, common: tuple[str, ...]) -> str:
    """An adapter or encoder lists its own keys; right below `where` the common keys are allowed as well."""
    key, unknown, _ = message.partition(" is not a known key")
    if not unknown or "." in key.removeprefix(f"{where}."):
        return message
    return message.replace("allowed: ", f"allowed: {', '.join(common)}, ")
