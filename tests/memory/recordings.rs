//! Statement 48 of the simulation: damaged recordings need little memory.

use crate::mutated::*;
use crate::resident::*;

#[test]
fn mutated_files_need_little_memory() {
    alone(|| {
        read_mutated(200);
        forget_peak();
        let before = resident_kib();
        read_mutated(mutated_count());
        if let Some((before, peak)) = before.zip(peak_kib()) {
            println!("{before} KiB before, {peak} KiB at most");
            assert!(peak < before + 5 * 1024, "{before} KiB before, {peak} KiB at most");
        }
    });
}
