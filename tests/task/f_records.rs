//! f_records
