"""Encryption at rest: nothing of what is stored can be read in the files, and only with the key can anything be had back."""

from pathlib import Path
from random import Random

import pytest

from eyot_store import Store, StoreError, StoreOptions
from eyot_store.check.check import check
from eyot_store.check.main import main
from eyot_store.records.store_cipher import StoreCipher, StoreKeys, new_store_cipher, unlock
from eyot_store.subjects import index_writer
from eyot_wire.jetstream.packed_range import unpack
from eyot_wire.native import StoredRun
from support.store.store import FAST, JOURNAL, commit, fill, make_log, open_inline
from support.store.stored_runs import written_of

KEYS = StoreKeys(b"correct horse")
OTHERS = StoreKeys(b"battery staple")
SECRETS = (
    b"secret-subject",
    b"secret-payload",
    b"Secret-Header",
    b"secret-config",
    b"SECRETSTREAM",
    b"secret-state",
    b"secret-position",
)


def sealed(options: StoreOptions, keys: StoreKeys | None = KEYS) -> StoreOptions:
    from msgspec.structs import replace

    return replace(options, keys=keys)


def filled(path: Path, options: StoreOptions) -> Store:
    """A store with something of everything, part of it only in the journal where there is one."""
    store = open_inline(path, options)
    log = make_log(store, "SECRETSTREAM", config=b'{"secret-config":1}')
    for number in range(30):
        txn = store.begin()
        log.append(
            txn, b"secret-subject.%d" % (number % 3), b"NATS/1.0\r\nSecret-Header: x\r\n\r\n", b"secret-payload", number
        )
        assert commit(store, txn) is None
    txn = store.begin()
    log.put_consumer(txn, "c", b"secret-config", b"secret-state")
    log.put_position(txn, b"p", b"secret-position")
    log.remove(txn, 7)
    assert commit(store, txn) is None
    return store


def assert_same(store: Store, count: int = 29) -> None:
    log = store.stream("A", "SECRETSTREAM")
    assert log is not None
    assert log.config == b'{"secret-config":1}'
    messages = log.read(1, max_messages=99, max_bytes=1 << 20).messages
    assert [m.seq for m in messages] == [seq for seq in range(1, 31) if seq != 7][:count]
    assert {m.payload for m in messages} == {b"secret-payload"}
    found = log.get(5)
    assert found is not None
    assert found.subject == b"secret-subject.1"
    assert log.consumers() == [("c", b"secret-config", b"secret-state")]
    assert log.positions() == {b"p": b"secret-position"}
    assert log.subject_count(b"secret-subject.0") == 9
    packed = StoredRun()
    log.reading(packed, 1, up_to=30, max_bytes=1 << 20)()
    assert len(packed) == count
    assert all(b"secret-payload" in record for _, record in unpack(packed.packed(), count))
    run = log.read_run(1, max_messages=99, max_bytes=1 << 20)
    assert run is not None
    assert {seq: message[3] for seq, message in written_of(run[0]).items()} == {m.seq: m.payload for m in messages}


def everything(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file())


@pytest.mark.parametrize("options", [FAST, JOURNAL], ids=["lmdb", "journal"])
@pytest.mark.parametrize("cipher", ["aes", "chacha"])
def test_nothing_can_be_read_without_the_key(
    tmp_path: Path, options: StoreOptions, cipher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_writer, "INDEX_EVERY", 5)
    options = sealed(options, StoreKeys(b"correct horse", cipher=cipher))
    store = filled(tmp_path / "s", options)
    assert_same(store)
    store.crash()
    left = everything(tmp_path / "s")
    assert not [secret for secret in SECRETS if secret in left]
    store = open_inline(tmp_path / "s", options)
    assert_same(store)
    store.close()
    left = everything(tmp_path / "s")
    assert not [secret for secret in SECRETS if secret in left]
    assert check(tmp_path / "s", options.keys).problems == []
    blind = check(tmp_path / "s")
    assert (blind.problems, blind.sealed) == ([], True)


def test_the_wrong_key_is_refused_and_destroys_nothing(tmp_path: Path) -> None:
    filled(tmp_path / "s", sealed(JOURNAL)).crash()
    before = (tmp_path / "s" / "data.mdb").read_bytes(), (tmp_path / "s" / "journal" / "segment-00").read_bytes()
    for keys, words in ((OTHERS, "not with the key given"), (None, "a key is required")):
        with pytest.raises(StoreError, match=words) as refused:
            open_inline(tmp_path / "s", sealed(JOURNAL, keys))
        assert refused.value.reason == "key"
    assert before == (
        (tmp_path / "s" / "data.mdb").read_bytes(),
        (tmp_path / "s" / "journal" / "segment-00").read_bytes(),
    )
    with pytest.raises(StoreError, match=f"the store in {tmp_path / 's'}: encrypted, and not with the key given"):
        check(tmp_path / "s", OTHERS)
    store = open_inline(tmp_path / "s", sealed(JOURNAL))
    assert_same(store)
    store.close()


def test_the_key_is_changed_without_writing_anything_else(tmp_path: Path) -> None:
    filled(tmp_path / "s", sealed(JOURNAL)).close()
    store = open_inline(tmp_path / "s", sealed(JOURNAL, StoreKeys(b"new", previous=b"correct horse")))
    assert_same(store)
    store.close()
    with pytest.raises(StoreError, match="not with the key given"):
        open_inline(tmp_path / "s", sealed(JOURNAL))
    store = open_inline(tmp_path / "s", sealed(JOURNAL, StoreKeys(b"new")))
    assert_same(store)
    store.close()


@pytest.mark.parametrize("options", [FAST, JOURNAL], ids=["lmdb", "journal"])
def test_a_store_that_was_not_encrypted_becomes_so(tmp_path: Path, options: StoreOptions) -> None:
    filled(tmp_path / "s", options).crash()
    assert b"secret-payload" in everything(tmp_path / "s")
    store = open_inline(tmp_path / "s", sealed(options))
    assert_same(store)
    fill(store, store.streams()[0], 5)
    store.close()
    left = everything(tmp_path / "s")
    assert not [secret for secret in SECRETS if secret in left]
    assert check(tmp_path / "s", KEYS).problems == []


def test_rewriting_that_was_cut_short_is_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path / "s", FAST).close()
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(StoreError) as failed:
            open_inline(tmp_path / "s", sealed(FAST))
        assert failed.value.reason == "full"
    assert not (tmp_path / "s" / "rewriting").exists()
    store = open_inline(tmp_path / "s", FAST)
    assert_same(store)
    store.close()
    (tmp_path / "s" / "rewriting").mkdir()
    (tmp_path / "s" / "rewriting" / "data.mdb").write_bytes(b"half of it")
    store = open_inline(tmp_path / "s", sealed(FAST))
    assert_same(store)
    store.close()


def test_flipped_bits_are_named_with_and_without_the_key(tmp_path: Path) -> None:
    store = filled(tmp_path / "s", sealed(FAST))
    log = store.streams()[0]
    key = (5).to_bytes(8, "big")
    environment = store._environment
    with environment.lmdb.begin(write=True) as txn:
        value = bytearray(txn.get(key, db=environment.messages[log.id]))
        value[20] ^= 1
        txn.put(key, bytes(value), db=environment.messages[log.id])
    with pytest.raises(StoreError, match="sequence 5: checksum"):
        log.get(5)
    store.close()
    assert any("sequence 5" in problem for problem in check(tmp_path / "s").problems)
    assert any("sequence 5" in problem for problem in check(tmp_path / "s", KEYS).problems)


def test_a_record_that_was_exchanged_with_its_checksum_does_not_open(tmp_path: Path) -> None:
    """Checksums are for accidents; the seal holds against somebody who makes them fit."""
    from zlib import crc32

    from eyot_store.records.record import pack_crc, salt_of

    store = filled(tmp_path / "s", sealed(FAST))
    log = store.streams()[0]
    fifth, sixth = (5).to_bytes(8, "big"), (6).to_bytes(8, "big")
    environment = store._environment
    with environment.lmdb.begin(write=True) as txn:
        body = txn.get(sixth, db=environment.messages[log.id])[:-4]
        txn.put(fifth, body + pack_crc(crc32(body, crc32(fifth, salt_of(log.id)))), db=environment.messages[log.id])
    with pytest.raises(StoreError, match="sequence 5: decryption failed"):
        log.get(5)
    assert [m.seq for m in log.read(1, max_messages=99, max_bytes=1 << 20).messages] == [1, 2, 3, 4]
    run = StoredRun()
    assert log.reading(run, 1, up_to=30, max_bytes=1 << 20)() == 5
    assert run.seqs() == [1, 2, 3, 4]
    store.close()


@pytest.mark.parametrize("keyed", [False, True], ids=["plain", "sealed"])
def test_compacting_a_store(tmp_path: Path, keyed: bool, capsys: pytest.CaptureFixture[str]) -> None:
    options = sealed(JOURNAL) if keyed else JOURNAL
    store = filled(tmp_path / "s", options)
    log = store.streams()[0]
    fill(store, log, 5000, payload=bytes(1000))
    txn = store.begin()
    log.purge(txn, subject_filter=b"a")
    assert commit(store, txn) is None
    store.close()
    size = (tmp_path / "s" / "data.mdb").stat().st_size
    key_file = tmp_path / "key"
    key_file.write_text("correct horse\n")
    arguments = [str(tmp_path / "s"), "--compact", *(["--key-file", str(key_file)] if keyed else [])]
    assert main(arguments) == 0
    assert "nothing is wrong" in capsys.readouterr().out
    assert (tmp_path / "s" / "data.mdb").stat().st_size < size / 3
    store = open_inline(tmp_path / "s", options)
    assert_same(store)
    assert store.streams()[0].state.last_seq == 5030
    store.close()
    assert check(tmp_path / "s", KEYS if keyed else None).problems == []


def test_nonces_never_come_twice() -> None:
    store_cipher = new_store_cipher("aes")
    seen = set()
    for count in (0, (1 << 32) - 2):
        store_cipher._count = count
        for _ in range(5):
            seen.add(store_cipher.seal(b"", b"x")[:12])
    assert len(seen) == 10


def test_the_key_is_in_no_repr() -> None:
    assert "correct" not in repr(KEYS) + repr(StoreOptions(keys=KEYS))


def test_a_data_key_is_had_with_either_key() -> None:
    store_cipher = StoreCipher("aes", bytes(32))
    entry = store_cipher.wrapped(b"old")
    assert unlock(entry, StoreKeys(b"old"))[1] is False
    assert unlock(entry, StoreKeys(b"new", b"old"))[1] is True
    with pytest.raises(StoreError):
        unlock(entry, StoreKeys(b"new", b"other"))


def test_a_workload_that_is_killed_anywhere(tmp_path: Path) -> None:
    rng = Random(1)
    options = sealed(JOURNAL)
    store = open_inline(tmp_path / "s", options)
    log = make_log(store)
    acked = 0
    for _ in range(60):
        txn = store.begin()
        for _ in range(rng.randrange(1, 40)):
            log.append(txn, b"a.%d" % rng.randrange(5), b"", b"x" * rng.randrange(300), log.state.last_seq + 1)
        assert commit(store, txn) is None
        acked = log.state.last_seq
        if rng.random() < 0.2:
            store.crash()
            store = open_inline(tmp_path / "s", options)
            found = store.stream("A", "S")
            assert found is not None
            log = found
            assert log.state.last_seq == acked
            assert log.count(1) == acked
    store.close()
    assert check(tmp_path / "s", KEYS).problems == []
