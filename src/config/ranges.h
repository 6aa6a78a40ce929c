// The ranges that keys share.
#pragma once
#include "keys.h"

extern const config_range config_at_least_0, config_at_least_1, config_at_least_1_or_minus_1, config_at_least_minus_1,
    config_0_or_at_least_2, config_number_at_least_0, config_above_0, config_above_0_or_inf, config_0_to_1,
    config_0_to_below_1, config_0_to_1024;
