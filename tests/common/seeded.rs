//! Random programs from a seed that is printed, so that the same ones can be run again.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Runs random programs, so many of them unless `PROCESSION_CASES` says otherwise, from the seed in `PROCESSION_SEED`
/// or one that is the moment. `run` says what is wrong.
pub(crate) fn random_programs<P: std::fmt::Debug>(
    cases: u32,
    config: Config,
    programs: impl Strategy<Value = P>,
    run: impl Fn(&P) -> Result<(), String>,
) {
    let seed: u64 = match std::env::var("PROCESSION_SEED") {
        Ok(text) => text.parse().expect("PROCESSION_SEED is a number"),
        Err(_) => std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64,
    };
    let cases = std::env::var("PROCESSION_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(cases);
    println!("PROCESSION_SEED={seed} PROCESSION_CASES={cases}");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    // In a mutation run the failure is enough.
    let max_shrink_iters = if cfg!(procession_mutants) { 0 } else { config.max_shrink_iters };
    let config = Config { cases, failure_persistence: None, max_shrink_iters, ..config };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    if let Err(failure) = runner.run(&programs, |program| run(&program).map_err(TestCaseError::fail)) {
        panic!("PROCESSION_SEED={seed}: {failure}");
    }
}
