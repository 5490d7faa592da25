//! The shutdown tree against its contract, through the public interface. The modules follow the sections of
//! `docs/guarantees/shutdown-tree.md`.

// Everything here is for this program alone; `pub` says what the modules share.
#![allow(unreachable_pub)]

#[path = "../common/wait.rs"]
mod wait;
mod helpers;

mod a_tree;
mod b_one_node;
mod c_order;
mod d_names;
mod e_errors;
mod f_waiting;
mod g_readiness;
mod h_values;
mod i_empty;
mod j_groups;
mod j_jobs;
mod j_limits;
mod j_looking;
mod k_hostile;
mod k_large;
mod k_limits;
mod k_random;
mod l_parts;
mod l_runtime;
