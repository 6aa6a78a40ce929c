// The ranges that keys share.
#include "ranges.h"

#include <float.h>
#include <math.h>

const config_range config_at_least_0 = {.min = 0, .max = INFINITY, .text = "≥ 0"};
const config_range config_at_least_1 = {.min = 1, .max = INFINITY, .text = "≥ 1"};
const config_range config_at_least_1_or_minus_1 = {
    .min = 1, .max = INFINITY, .or_minus_one = true, .text = "≥ 1 or -1"};
const config_range config_at_least_minus_1 = {.min = -1, .max = INFINITY, .text = "≥ -1"};
const config_range config_0_or_at_least_2 = {.min = 0, .max = INFINITY, .not_one = true, .text = "≥ 0 but not 1"};
const config_range config_number_at_least_0 = {.min = 0, .max = DBL_MAX, .text = "≥ 0"};
const config_range config_above_0 = {.min = 0, .max = DBL_MAX, .above_min = true, .text = "> 0"};
const config_range config_above_0_or_inf = {.min = 0, .max = INFINITY, .above_min = true, .text = "> 0"};
const config_range config_0_to_1 = {.min = 0, .max = 1, .text = "from 0 to 1"};
const config_range config_0_to_1024 = {.min = 0, .max = 1024, .text = "from 0 to 1024"};
const config_range config_0_to_below_1 = {.min = 0, .max = 1, .below_max = true, .text = "≥ 0 and < 1"};
