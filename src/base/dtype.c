#include "base/dtype.h"

static const char *const names[CT_DTYPES] = {"f32", "bf16", "f64", "i32", "i64"};

const char *ct_dtype_name(ct_dtype dtype) { return names[dtype]; }

int ct_dtype_parse(const char *name, ct_dtype *out_dtype) {
    for (int i = 0; i < CT_DTYPES; i++)
        if (!strcmp(name, names[i])) return *out_dtype = (ct_dtype)i, 1;
    return 0;
}
