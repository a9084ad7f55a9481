# cython: language_level=3, boundscheck=False, wraparound=False, auto_pickle=False, embedsignature=False
"""The counters of very many subjects, in C: the compiled twin of subject_table.py, which documents the methods.

Subjects are consecutive in an arena, counters in slots. A hash table with linear probing finds the slots. A slot stays
in place as long as its subject exists; free slots are reused first.
"""

from array import array

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItemWithError
from cpython.tuple cimport PyTuple_Check, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memchr, memcmp, memcpy

from eyot_store import subject_table
from eyot_store.errors import StoreError

cdef extern from *:
    void __builtin_prefetch(const void* at) nogil

include "subject_hash.pxi"
include "packed_reader.pxi"
include "subject_match.pxi"
include "pattern_trie.pxi"
include "matched_subjects.pxi"
include "sequences.pxi"
include "subject_slot.pxi"

cdef bytes UNREAD = subject_table.UNREAD
cdef Py_ssize_t NONE = -1


cdef class SubjectTable:
    cdef Slot* _slots
    cdef Py_ssize_t _slots_used, _slots_size
    cdef uint64_t _free  # slot and 1
    cdef uint32_t* _places  # slot and 1, by hash
    cdef uint64_t _mask
    cdef char* _arena
    cdef uint64_t _arena_used, _arena_size, _arena_lost
    cdef Py_ssize_t _count
    cdef readonly long long messages

    def __cinit__(self):
        self._places = <uint32_t*>calloc(8, sizeof(uint32_t))
        if self._places == NULL:
            raise MemoryError
        self._mask = 7

    def __dealloc__(self):
        free(self._slots)
        free(self._places)
        free(self._arena)

    def __len__(self):
        return self._count

    # -- places --------------------------------------------------------------------------------------------------------

    cdef Slot* _find(self, const char* text, Py_ssize_t size, uint32_t hashed) noexcept:
        cdef uint64_t place = hashed & self._mask
        cdef Slot* slot
        while self._places[place]:
            slot = self._slots + self._places[place] - 1
            if slot.hash == hashed and slot.size == size and memcmp(self._arena + slot.at, text, size) == 0:
                return slot
            place = (place + 1) & self._mask
        return NULL

    cdef inline Slot* _known(self, bytes subject) noexcept:
        cdef const char* text = PyBytes_AS_STRING(subject)
        return self._find(text, PyBytes_GET_SIZE(subject), hash_of(text, PyBytes_GET_SIZE(subject)))

    cdef Slot* _add(self, const char* text, Py_ssize_t size, uint32_t hashed) except NULL:
        # A slot for a subject that has none.
        cdef Py_ssize_t index
        cdef uint64_t place
        cdef Slot* slot
        if size > 0xFFFFFFFF or self._count > 0xFFFFFFF0:
            raise OverflowError("too many subjects")
        self._make_room(size)
        if self._free:
            index = <Py_ssize_t>self._free - 1
            self._free = self._slots[index].at
        else:
            index = self._slots_used
            self._slots_used += 1
        slot = self._slots + index
        slot.at = self._arena_used
        slot.size = <uint32_t>size
        slot.hash = hashed
        memcpy(self._arena + self._arena_used, text, size)
        self._arena_used += size
        place = hashed & self._mask
        while self._places[place]:
            place = (place + 1) & self._mask
        self._places[place] = <uint32_t>(index + 1)
        self._count += 1
        return slot

    cdef int _make_room(self, Py_ssize_t size) except -1:
        cdef void* moved
        cdef Py_ssize_t slots
        cdef uint64_t bytes_
        if not self._free and self._slots_used == self._slots_size:
            slots = self._slots_size + self._slots_size // 4 + 8
            moved = realloc(self._slots, slots * sizeof(Slot))
            if moved == NULL:
                raise MemoryError
            self._slots = <Slot*>moved
            self._slots_size = slots
        if self._arena_lost > 65536 and self._arena_lost * 2 > self._arena_used:
            self._compact()
        if self._arena_used + size > self._arena_size:
            bytes_ = self._arena_used + size + self._arena_used // 4 + 256
            moved = realloc(self._arena, bytes_)
            if moved == NULL:
                raise MemoryError
            self._arena = <char*>moved
            self._arena_size = bytes_
        if <uint64_t>(self._count + 1) * 4 > (self._mask + 1) * 3:
            self._rehash()
        return 0

    cdef int _rehash(self) except -1:
        cdef uint64_t mask = self._mask * 2 + 1, place
        cdef uint32_t* places = <uint32_t*>calloc(mask + 1, sizeof(uint32_t))
        cdef Py_ssize_t index
        if places == NULL:
            raise MemoryError
        for index in range(self._slots_used):
            if index + 16 < self._slots_used:
                __builtin_prefetch(places + (self._slots[index + 16].hash & mask))
            if self._slots[index].count:
                place = self._slots[index].hash & mask
                while places[place]:
                    place = (place + 1) & mask
                places[place] = <uint32_t>(index + 1)
        free(self._places)
        self._places = places
        self._mask = mask
        return 0

    cdef int _compact(self) except -1:
        # A new arena, without removed subjects.
        cdef uint64_t used = 0, size = self._arena_used - self._arena_lost + 256
        cdef char* arena = <char*>realloc(NULL, size)
        cdef Py_ssize_t index
        cdef Slot* slot
        if arena == NULL:
            raise MemoryError
        for index in range(self._slots_used):
            slot = self._slots + index
            if slot.count:
                memcpy(arena + used, self._arena + slot.at, slot.size)
                slot.at = used
                used += slot.size
        free(self._arena)
        self._arena = arena
        self._arena_size = size
        self._arena_used = used
        self._arena_lost = 0
        return 0

    cdef void _drop(self, Slot* slot) noexcept:
        cdef uint64_t index = slot - self._slots
        cdef uint64_t place = slot.hash & self._mask, next_place, home
        while self._places[place] != index + 1:
            place = (place + 1) & self._mask
        # Later entries of the probe chain move up.
        next_place = place
        while True:
            next_place = (next_place + 1) & self._mask
            if not self._places[next_place]:
                break
            home = self._slots[self._places[next_place] - 1].hash & self._mask
            if ((next_place - home) & self._mask) >= ((next_place - place) & self._mask):
                self._places[place] = self._places[next_place]
                place = next_place
        self._places[place] = 0
        self._arena_lost += slot.size
        slot.count = 0
        slot.at = self._free
        self._free = index + 1
        self._count -= 1

    # -- numbers -------------------------------------------------------------------------------------------------------

    def get(self, bytes subject not None):
        cdef Slot* slot = self._known(subject)
        return None if slot == NULL else (slot.count, slot.first, slot.last)

    def count(self, bytes subject not None):
        cdef Slot* slot = self._known(subject)
        return 0 if slot == NULL else slot.count

    def set_ends(self, bytes subject not None, int64_t first, int64_t last):
        cdef Slot* slot = self._known(subject)
        if slot == NULL:
            raise KeyError(subject)
        slot.first = first
        slot.last = last

    def remove(self, bytes subject not None):
        cdef Slot* slot = self._known(subject)
        if slot != NULL:
            self.messages -= slot.count
            self._drop(slot)

    cdef int64_t _came(self, bytes subject, uint32_t hashed, int64_t count, int64_t first, int64_t last) except -1:
        cdef const char* text = PyBytes_AS_STRING(subject)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(subject)
        cdef Slot* slot = self._find(text, size, hashed)
        cdef int64_t before
        if count <= 0:
            raise ValueError("nothing came")
        if slot == NULL:
            slot = self._add(text, size, hashed)
            slot.count = count
            slot.first = first
            before = 0
        else:
            before = slot.last
            slot.count += count
        slot.last = last
        self.messages += count
        return before

    def came(self, bytes subject not None, int64_t count, int64_t first, int64_t last):
        return self._came(subject, hash_of(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject)), count, first, last)

    def came_run(self, messages, int64_t first, dict before not None):
        cdef bytes subject
        cdef bytes last = None
        cdef int64_t previous
        cdef Py_ssize_t index = 0, count = 0
        cdef uint32_t* hashes = self._ahead(messages, 0, &count)
        try:
            for message in messages:
                if index == count:
                    raise RuntimeError("messages came while they were counted")
                subject = subject_in(message, 0)
                previous = self._came(subject, hashes[index], 1, first + index, first + index)
                if subject is not last and PyDict_GetItemWithError(before, subject) == NULL:
                    before[subject] = previous
                last = subject
                index += 1
        finally:
            free(hashes)

    cdef uint32_t* _ahead(self, things, Py_ssize_t at, Py_ssize_t* hashed) except NULL:
        # Returns the hashes of the subjects of many items (at index `at` of each, or the item itself); the caller
        # frees them. Prefetches the memory that lookups need.
        cdef bytes subject
        cdef Py_ssize_t index = 0, count = len(things)
        cdef uint32_t* hashes = <uint32_t*>malloc((count + 1) * sizeof(uint32_t))
        if hashes == NULL:
            raise MemoryError
        try:
            for thing in things:
                if index == count:
                    break
                subject = subject_in(thing, at)
                hashes[index] = hash_of(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))
                index += 1
        except BaseException:
            free(hashes)
            raise
        self._expect(hashes, index)
        hashed[0] = index
        return hashes

    cdef void _expect(self, const uint32_t* hashes, Py_ssize_t count) noexcept nogil:
        # Each lookup waits for memory three times: prefetch for many lookups at once.
        cdef Py_ssize_t index
        cdef uint32_t place
        for index in range(count):
            __builtin_prefetch(self._places + (hashes[index] & self._mask))
        for index in range(count):
            place = self._places[hashes[index] & self._mask]
            if place:
                __builtin_prefetch(self._slots + place - 1)
                __builtin_prefetch(<char*>(self._slots + place) - 1)
        for index in range(count):
            place = self._places[hashes[index] & self._mask]
            if place and self._slots[place - 1].count:
                __builtin_prefetch(self._arena + self._slots[place - 1].at)

    def went(self, bytes subject not None, int64_t seq):
        cdef Slot* slot = self._known(subject)
        if slot == NULL:
            return
        self.messages -= 1
        if slot.count <= 1:
            self._drop(slot)
        else:
            slot.count -= 1
            some_went(slot, seq, seq)

    def went_run(self, found):
        cdef Py_ssize_t count = 0
        free(self._ahead(found, 1, &count))
        for seq, name, _ in found:
            self.went(<bytes?>name, seq)

    def oldest_of(self, subjects, int64_t keep, int64_t upto):
        cdef dict single = {}
        cdef list others = []
        cdef Slot* slot
        cdef Py_ssize_t count = 0
        free(self._ahead(subjects, -1, &count))
        for name in subjects:
            slot = self._known(<bytes?>name)
            if slot == NULL or slot.count <= keep:
                continue
            if slot.count == keep + 1 and 0 < slot.first <= upto:
                single[slot.first] = name
            else:
                others.append(name)
        return single, others

    def back(self, bytes subject not None, int64_t seq):
        cdef Slot* slot = self._known(subject)
        if slot == NULL:
            self.came(subject, 1, seq, seq)
            return
        self.messages += 1
        slot.count += 1
        slot.first = min(slot.first, seq) if slot.first > 0 else -min(-slot.first, seq)
        if slot.last:
            slot.last = max(slot.last, seq)

    # -- an index ------------------------------------------------------------------------------------------------------

    cdef int _fold(
        self, const char* text, Py_ssize_t size, int64_t count, int64_t first, int64_t last, int64_t low, int64_t high
    ) except -1:
        cdef uint32_t hashed = hash_of(text, size)
        cdef Slot* slot = self._find(text, size, hashed)
        if (slot.count if slot != NULL else 0) + count < 0:
            raise StoreError("corrupt", "an index of subjects counts below zero")
        if slot == NULL:
            if not count:
                return 0
            slot = self._add(text, size, hashed)
            slot.count = count
            slot.first = first
            slot.last = last
        elif slot.count + count == 0:
            self._drop(slot)
            self.messages += count
            return 0
        else:
            slot.count += count
            if last:
                slot.last = last
        self.messages += count
        if high:
            some_went(slot, low, high)
        return 0

    def fold(self, entries):
        cdef bytes subject
        for name, count, first, last, low, high in entries:
            subject = UNREAD if name is None else <bytes?>name
            self._fold(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject), count, first, last, low, high)

    def fold_record(self, bytes record not None):
        cdef Reader reader
        cdef Py_ssize_t index, entry, count = 0, size = 0
        cdef const char* text
        cdef int64_t head[4]
        cdef int64_t numbers[5]
        cdef bint folding
        for folding in (False, True):  # first check the record's form, then fold it
            reader.at = <const uint8_t*>PyBytes_AS_STRING(record)
            reader.end = reader.at + PyBytes_GET_SIZE(record)
            reader.bad = False
            if elements(&reader) != 5:
                reader.bad = True
            for index in range(4):
                head[index] = number(&reader)
            count = elements(&reader)
            for entry in range(count):
                if elements(&reader) != 6:
                    reader.bad = True
                text = text_of(&reader, &size)
                if not folding and not reader.bad:
                    # the second pass's memory is prefetched by then
                    __builtin_prefetch(self._places + (hash_of(text, size) & self._mask))
                for index in range(5):
                    numbers[index] = number(&reader)
                if reader.bad:
                    break
                if folding:
                    self._fold(text, size, numbers[0], numbers[1], numbers[2], numbers[3], numbers[4])
            if reader.bad or reader.at != reader.end:
                return self._fold_unusual(record)
        return head[0], head[1], head[2], head[3]

    def _fold_unusual(self, bytes record):
        # Longer than this release writes them, or no record at all.
        head, entries = subject_table.decoded(record)
        self.fold(entries)
        return head

    def scan(self, bytes pattern not None, Py_ssize_t at, Py_ssize_t limit):
        cdef Slot* slot
        cdef Py_ssize_t end = min(self._slots_used, at + limit)
        cdef tuple patterns = (pattern,)
        cdef list found = []
        if at < 0:
            raise IndexError(at)
        while at < end:
            slot = self._slots + at
            at += 1
            if self._wanted(slot, patterns, None):
                name = PyBytes_FromStringAndSize(self._arena + slot.at, slot.size)
                found.append((name, slot.count, slot.first, slot.last))
                # Making objects may run a garbage collection, and that anything.
                end = min(self._slots_used, end)
        return found, 0 if at >= self._slots_used else at

    cdef bint _wanted(self, Slot* slot, tuple patterns, PatternTrie trie) except -1:
        # Whether there is a subject, and one of the patterns matches it (b"": all).
        cdef Py_ssize_t index
        cdef bytes pattern
        if not slot.count:
            return False
        if trie is not None:
            return trie.fits(0, self._arena + slot.at, slot.size)
        for index in range(PyTuple_GET_SIZE(patterns)):
            pattern = <bytes?><object>PyTuple_GET_ITEM(patterns, index)
            if not PyBytes_GET_SIZE(pattern) or fits(
                PyBytes_AS_STRING(pattern), PyBytes_GET_SIZE(pattern), self._arena + slot.at, slot.size
            ):
                return True
        return False

    cdef bytes _name(self, Slot* slot):
        return PyBytes_FromStringAndSize(self._arena + slot.at, slot.size)

    def total_from(self, tuple patterns not None, int64_t seq, int64_t most):
        cdef int64_t total = 0
        cdef Py_ssize_t index
        cdef Slot* slot
        cdef list astride = []
        cdef PatternTrie trie = trie_of(patterns)
        for index in range(self._slots_used):
            slot = self._slots + index
            if not self._wanted(slot, patterns, trie):
                continue
            if seq <= 1 or slot.first >= seq:
                total += slot.count
            elif (not slot.last or slot.last >= seq) and astride is not None:
                astride.append(self._name(slot))
                if len(astride) > most:
                    astride = None
        return total, astride

    def newest(self, bytes pattern not None, int64_t upto):
        cdef int64_t best = 0
        cdef Py_ssize_t index
        cdef Slot* slot
        cdef tuple patterns = (pattern,)
        cdef list doubtful = []
        for index in range(self._slots_used):
            slot = self._slots + index
            if not slot.count or (0 < slot.last <= best) or not self._wanted(slot, patterns, None):
                continue
            if 0 < slot.last <= upto:
                best = slot.last
            else:
                doubtful.append(self._name(slot))
        return best, doubtful

    def lasts(self, tuple patterns not None, int64_t above, int64_t upto):
        cdef Py_ssize_t index
        cdef Slot* slot
        cdef PatternTrie trie = trie_of(patterns)
        cdef Sequences found = Sequences()
        cdef list doubtful = []
        for index in range(self._slots_used):
            slot = self._slots + index
            if not slot.count or (0 < slot.last <= above) or not self._wanted(slot, patterns, trie):
                continue
            if 0 < slot.last <= upto:
                found.add(slot.last)
            else:
                doubtful.append(self._name(slot))
        return found.ascending(), doubtful

    def matched(self, bytes pattern not None):
        cdef Matched found = Matched()
        cdef Py_ssize_t index
        cdef Slot* slot
        cdef tuple patterns = (pattern,)
        for index in range(self._slots_used):
            slot = self._slots + index
            if self._wanted(slot, patterns, None):
                found._add(self._arena + slot.at, slot.size, slot.count)
        return found
