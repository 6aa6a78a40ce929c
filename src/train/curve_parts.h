// What the files of the curve share: the ranges and the ticks of its axes.
#pragma once
#include "train/curve.h"

typedef struct {
    double low, high; // of what is drawn; high > low
    double tick;      // distance of the ticks, 1, 2 or 5 times a power of ten
    int decimals;     // that a tick's label needs
} ct_curve_axis;

// The axes of both losses, with at most `ticks` ticks.
ct_curve_axis ct_curve_axis_of_steps(const ct_curve *curve, int ticks);
ct_curve_axis ct_curve_axis_of_loss(const ct_curve *curve, int ticks);

// The first tick at or above the axis' low end.
double ct_curve_first_tick(const ct_curve_axis *axis);
