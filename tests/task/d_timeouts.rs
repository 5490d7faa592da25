//! d_timeouts
