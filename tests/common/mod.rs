//! Support that several test programs share.

use std::path::PathBuf;
use std::process::Command;

/// The program of an example, as it is in the sources now. Cargo does not make it for a test: of an example with
/// `test = true` it makes the unit tests only. So it is asked to here, which costs nothing if all is fresh.
pub(crate) fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows where it is");
    let profile_folder = test.parent().and_then(|deps| deps.parent()).expect("a test is in `PROFILE/deps`");
    let profile = match profile_folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(other) => other,
    };
    let mut build = Command::new(env!("CARGO"));
    build.current_dir(env!("CARGO_MANIFEST_DIR")).args(["build", "--quiet", "--example", name, "--profile", profile]);
    // The same folder as the test's, so that what is made already is used: `TARGET/PROFILE`, or `TARGET/TRIPLE/PROFILE`
    // where a target was named.
    let folder = profile_folder.parent().expect("a profile's folder is in a target's");
    let name_of_folder = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match folder.parent().filter(|_| name_of_folder.starts_with(&format!("{}-", std::env::consts::ARCH))) {
        Some(above) => build.arg("--target-dir").arg(above).args(["--target", name_of_folder]),
        None => build.arg("--target-dir").arg(folder),
    };
    let status = build.status().expect("cargo can be started");
    assert!(status.success(), "the example {name} cannot be built");
    profile_folder.join("examples").join(format!("{name}{}", std::env::consts::EXE_SUFFIX))
}
