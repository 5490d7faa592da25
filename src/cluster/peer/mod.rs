//! The connection to one other node, as a plain machine: frames and ticks go in, frames and effects come out.
