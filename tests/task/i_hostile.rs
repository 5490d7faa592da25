//! i_hostile
