// Lists of names that keys of several sections share.
#pragma once
#include "keys.h"

extern const config_choice config_datasets[];
