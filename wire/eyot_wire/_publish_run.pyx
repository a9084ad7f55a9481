# cython: language_level=3, boundscheck=False, wraparound=False, auto_pickle=False, embedsignature=False
"""Runs of PUBLISH packets of QoS 0 and 1 in C: the compiled twin of mqtt/publish_run.py, which documents the functions."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcmp

from eyot_wire.mqtt.publish_run import ACKED_PUBLISH, PLAIN_PUBLISH, AckedScanned, MixedScanned, Scanned

cdef unsigned char FIRST = PLAIN_PUBLISH
cdef unsigned char FIRST_ACKED = ACKED_PUBLISH
cdef object SCANNED = Scanned
cdef object ACKED_SCANNED = AckedScanned
cdef object MIXED_SCANNED = MixedScanned


cdef Py_ssize_t body_of(const unsigned char* data, Py_ssize_t size, Py_ssize_t at, Py_ssize_t* length) noexcept:
    # Returns where the body begins; 0 for a length that is not whole, or longer than it needs to be.
    cdef Py_ssize_t offset
    cdef unsigned char byte
    length[0] = 0
    for offset in range(1, 5):
        if at + offset >= size:
            return 0
        byte = data[at + offset]
        length[0] |= <Py_ssize_t>(byte & 0x7F) << 7 * (offset - 1)
        if byte < 0x80:
            return 0 if offset > 1 and not byte else at + offset + 1
    return 0


def scan_run(bytes source not None, Py_ssize_t at, bytes head not None, Py_ssize_t packet_bytes_max):
    cdef const unsigned char* data = <const unsigned char*>PyBytes_AS_STRING(source)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(source), head_bytes = PyBytes_GET_SIZE(head)
    cdef Py_ssize_t start, length = 0, count = 0, payload_bytes = 0, payload_max = 0
    if at < 0:
        raise IndexError(at)
    while at < size and data[at] == FIRST:
        start = body_of(data, size, at, &length)
        if not start or length > size - start or start + length - at > packet_bytes_max or length < head_bytes:
            break
        if memcmp(data + start, PyBytes_AS_STRING(head), head_bytes) != 0:
            break
        count += 1
        length -= head_bytes
        payload_bytes += length
        payload_max = max(payload_max, length)
        at = start + head_bytes + length
    return SCANNED(at, count, payload_bytes, payload_max)


def scan_mixed(bytes source not None, Py_ssize_t at, dict heads not None, Py_ssize_t head_more, Py_ssize_t packet_bytes_max):
    cdef const unsigned char* data = <const unsigned char*>PyBytes_AS_STRING(source)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(source), head_bytes
    cdef Py_ssize_t start, length = 0, count = 0, payload_bytes = 0, payload_max = 0
    cdef dict seen = {}
    cdef bytes head
    if at < 0 or head_more < 0:
        raise IndexError(at)
    while at < size and data[at] == FIRST:
        start = body_of(data, size, at, &length)
        if not start or length > size - start or start + length - at > packet_bytes_max or length < 2:
            break
        head_bytes = 2 + (<Py_ssize_t>data[start] << 8 | data[start + 1])
        if head_more > length or length < head_bytes + head_more:
            break
        head_bytes += head_more
        head = PyBytes_FromStringAndSize(<const char*>data + start, head_bytes)
        if head not in heads:
            break
        seen[head] = None
        count += 1
        length -= head_bytes
        payload_bytes += length
        payload_max = max(payload_max, length)
        at = start + head_bytes + length
    return MIXED_SCANNED(at, count, payload_bytes, payload_max, list(seen))


def scan_acked(bytes source not None, Py_ssize_t at, bytes head not None, bint has_properties, Py_ssize_t packet_bytes_max):
    cdef const unsigned char* data = <const unsigned char*>PyBytes_AS_STRING(source)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(source), head_bytes = PyBytes_GET_SIZE(head)
    cdef Py_ssize_t before = head_bytes + 2 + has_properties
    cdef Py_ssize_t start, length = 0, payload_bytes = 0, payload_max = 0
    cdef int packet_id
    cdef list found = [], packet_ids = []
    if at < 0:
        raise IndexError(at)
    while at < size and data[at] == FIRST_ACKED:
        start = body_of(data, size, at, &length)
        if not start or length > size - start or start + length - at > packet_bytes_max or length < before:
            break
        if memcmp(data + start, PyBytes_AS_STRING(head), head_bytes) != 0:
            break
        packet_id = data[start + head_bytes] << 8 | data[start + head_bytes + 1]
        if not packet_id or (has_properties and data[start + before - 1]):
            break
        packet_ids.append(packet_id)
        length -= before
        found.append(PyBytes_FromStringAndSize(<const char*>data + start + before, length))
        payload_bytes += length
        payload_max = max(payload_max, length)
        at = start + before + length
    return ACKED_SCANNED(at, packet_ids, found, payload_bytes, payload_max)


def payloads(bytes packets not None, Py_ssize_t head_bytes):
    cdef const unsigned char* data = <const unsigned char*>PyBytes_AS_STRING(packets)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(packets), at = 0, start, length = 0
    cdef list found = []
    if head_bytes < 0:
        raise IndexError(head_bytes)
    while at < size:
        start = body_of(data, size, at, &length)
        if not start or length > size - start or length < head_bytes:
            raise ValueError("not the packets of a run")
        found.append(PyBytes_FromStringAndSize(<const char*>data + start + head_bytes, length - head_bytes))
        at = start + length
    return found
