/* The check of a Kafka batch's records, without an object for each record.
 *
 * Accepts exactly what quorumlog.wire.kafka.records reads of a producer's batch, if its header keys are UTF-8: tests
 * compare the two on random bytes.
 * Source of the layout: Kafka's DefaultRecord, KIP-98.
 */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <stdint.h>

/* Limits of the reader, in quorumlog.wire.kafka.records. */
#define MOST_HEADERS (1 << 16)
#define SMALLEST_HEADER_BYTES 2
/* Milliseconds that are a number of microseconds in 64 bits. */
#define MOST_MS (INT64_MAX / 1000 - 1)
/* Below this size it is not worth letting other threads run. */
#define LEAST_UNLOCKED_BYTES (1 << 14)

typedef struct {
    const uint8_t *at;
    const uint8_t *end; /* of all records */
} Cursor;

typedef struct {
    int64_t max_timestamp_ms;
    int has_null_keys;
    const char *problem; /* NULL: none */
    Py_ssize_t record;   /* where the problem is */
} Result;

static const char CUT_OFF[] = "is cut off";
static const char LONG_VARINT[] = "has a varint of too many bits";
static const char NEGATIVE_LENGTH[] = "has a negative length";

/* Reads an unsigned varint of at most `bits` bits; returns the problem, or NULL. */
static const char *read_varint(Cursor *cursor, int bits, uint64_t *value)
{
    uint64_t raw = 0;
    int shift = 0;
    for (;;) {
        if (cursor->at >= cursor->end)
            return CUT_OFF;
        uint8_t byte = *cursor->at++;
        uint64_t part = byte & 0x7F;
        /* Bits beyond 64 would be shifted out unnoticed. */
        if (shift == 63 && part > 1)
            return LONG_VARINT;
        raw |= part << shift;
        if (byte < 0x80)
            break;
        shift += 7;
        if (shift >= bits)
            return LONG_VARINT;
    }
    if (bits < 64 && raw >> bits)
        return LONG_VARINT;
    *value = raw;
    return NULL;
}

static const char *read_signed(Cursor *cursor, int bits, int64_t *value)
{
    uint64_t raw = 0;
    const char *problem = read_varint(cursor, bits, &raw);
    *value = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
    return problem;
}

/* True if bytes are UTF-8 as Python decodes it: no overlong forms, no surrogates, nothing beyond U+10FFFF. */
static int is_utf8(const uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        uint8_t lead = *at++;
        int more = lead < 0x80 ? 0 : lead < 0xC2 ? -1 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : lead < 0xF5 ? 3 : -1;
        if (more < 0 || end - at < more)
            return 0;
        if ((lead == 0xE0 && *at < 0xA0) || (lead == 0xED && *at > 0x9F) || (lead == 0xF0 && *at < 0x90)
            || (lead == 0xF4 && *at > 0x8F))
            return 0;
        for (; more > 0; more--, at++)
            if ((*at & 0xC0) != 0x80)
                return 0;
    }
    return 1;
}

/* Passes over bytes behind their length, -1 for null. */
static const char *skip_bytes(Cursor *cursor, int64_t *size)
{
    const char *problem = read_signed(cursor, 32, size);
    if (problem != NULL)
        return problem;
    if (*size < 0)
        return *size == -1 ? NULL : NEGATIVE_LENGTH;
    if (*size > cursor->end - cursor->at)
        return CUT_OFF;
    cursor->at += *size;
    return NULL;
}

static const char *check_headers(Cursor *cursor, const uint8_t *record_end)
{
    int64_t count = 0, size = 0;
    const char *problem = read_signed(cursor, 32, &count);
    if (problem != NULL)
        return problem;
    int64_t left = record_end - cursor->at;
    if (count < 0 || count * SMALLEST_HEADER_BYTES > (left > 0 ? left : 0))
        return "has an impossible number of headers";
    if (count > MOST_HEADERS)
        return "has more headers than any reader takes";
    for (; count > 0; count--) {
        if ((problem = skip_bytes(cursor, &size)) != NULL)
            return problem;
        if (size < 0)
            return "has a header without a key";
        if (!is_utf8(cursor->at - size, cursor->at))
            return "has a header whose key is not UTF-8";
        if ((problem = skip_bytes(cursor, &size)) != NULL)
            return problem;
    }
    return NULL;
}

static const char *check_record(Cursor *cursor, int64_t place, int64_t base_timestamp_ms, Result *result)
{
    int64_t length = 0, time_delta = 0, offset_delta = 0, timestamp_ms = 0, size = 0;
    const char *problem = read_signed(cursor, 32, &length);
    if (problem != NULL)
        return problem;
    if (length < 0)
        return NEGATIVE_LENGTH;
    if (length > cursor->end - cursor->at)
        return CUT_OFF;
    const uint8_t *record_end = cursor->at + length;
    if (cursor->at >= cursor->end)
        return CUT_OFF;
    cursor->at++; /* the attributes, of which none is defined */
    if ((problem = read_signed(cursor, 64, &time_delta)) != NULL)
        return problem;
    if ((problem = read_signed(cursor, 32, &offset_delta)) != NULL)
        return problem;
    if ((problem = skip_bytes(cursor, &size)) != NULL)
        return problem;
    result->has_null_keys |= size < 0;
    if ((problem = skip_bytes(cursor, &size)) != NULL)
        return problem;
    if ((problem = check_headers(cursor, record_end)) != NULL)
        return problem;
    if (cursor->at != record_end)
        return "does not have the length that it states";
    if (offset_delta != place)
        return "has an offset that does not follow the one before it";
    if (__builtin_add_overflow(base_timestamp_ms, time_delta, &timestamp_ms) || timestamp_ms > MOST_MS
        || timestamp_ms < -MOST_MS)
        return "has a timestamp out of range";
    if (timestamp_ms > result->max_timestamp_ms)
        result->max_timestamp_ms = timestamp_ms;
    return NULL;
}

static void check_all(const uint8_t *data, Py_ssize_t size, int64_t count, int64_t base_timestamp_ms, Result *result)
{
    Cursor cursor = {data, data + size};
    for (int64_t place = 0; place < count; place++) {
        result->problem = check_record(&cursor, place, base_timestamp_ms, result);
        if (result->problem != NULL) {
            result->record = (Py_ssize_t)place;
            return;
        }
    }
    if (cursor.at != cursor.end) {
        result->problem = "is the last one, and bytes follow it";
        result->record = (Py_ssize_t)(count - 1);
    }
}

static PyObject *check_records(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_buffer data;
    long long count = 0, base_timestamp_ms = 0;
    Result result = {INT64_MIN, 0, NULL, 0};
    if (!PyArg_ParseTuple(arguments, "y*LL", &data, &count, &base_timestamp_ms))
        return NULL;
    if (data.len < LEAST_UNLOCKED_BYTES) {
        check_all(data.buf, data.len, count, base_timestamp_ms, &result);
    } else {
        Py_BEGIN_ALLOW_THREADS
        check_all(data.buf, data.len, count, base_timestamp_ms, &result);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&data);
    if (result.problem != NULL) {
        PyErr_Format(PyExc_ValueError, "record %zd %s", result.record, result.problem);
        return NULL;
    }
    return Py_BuildValue("(LN)", (long long)result.max_timestamp_ms, PyBool_FromLong(result.has_null_keys));
}

static PyMethodDef methods[] = {
    {"check_records", check_records, METH_VARARGS,
     "check_records(records, count, base_timestamp_ms) -> (max_timestamp_ms, has_null_keys)\n\n"
     "Checks the uncompressed records of a producer's batch. Raises ValueError that names the first bad record."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_records", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__records(void)
{
    return PyModuleDef_Init(&definition);
}
