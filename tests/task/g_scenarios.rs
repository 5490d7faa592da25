//! g_scenarios
