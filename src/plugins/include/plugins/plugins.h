// Shared objects of users: ops, models and data sources that join the tables (include/ctitan/plugin.h is what they see).
#pragma once
#include "ctitan/plugin.h"
#include "models/model.h"

// Loads shared objects and adds what they describe to the tables of ops, kernels and models. Call it once, before anything reads the tables
// from another thread; a path that was loaded before is passed over. Errors name the file: not there, no entry, another ABI, a name that is
// taken, a rule or dtypes that do not parse, no kernel, no reference.
ct_status ct_plugins_load(const char *const *paths, int count);

// The data source that a plugin brought under this name; NULL: none did.
const ctitan_source *ct_plugins_source(const char *name);
