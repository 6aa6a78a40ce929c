// The functions that the host gives to plugins, and the checks behind them.
#pragma once
#include "ctitan/plugin.h"
#include "graph/graph.h"

extern const ctitan_host plugin_host;

// Where `ok` is not, makes "a plugin's <what> <name>" the graph's error, unless one stands. 1: `ok`, and no error stands.
int plugin_holds(ct_graph *graph, int ok, const char *what, const char *name);

int plugin_is_value(const ct_graph *graph, ctitan_value value);
int plugin_is_dim(const ctitan_dim *dim); // a name that ends, an extent not below 0
