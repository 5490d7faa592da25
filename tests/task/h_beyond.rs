//! h_beyond
