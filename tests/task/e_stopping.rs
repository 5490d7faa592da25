//! e_stopping
