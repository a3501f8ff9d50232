//! The example as a person runs it: its exit status says whether the curves agree.

use std::process::Command;

fn run(arguments: &[&str]) {
    let out = Command::new(env!("CARGO_BIN_EXE_train_digits")).args(arguments).output().expect("the program starts");
    let (text, errors) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{arguments:?}: {}\n{text}\n{errors}", out.status);
    assert!(text.contains("accuracy on held-out digits"), "{text}");
}

#[test]
fn four_processes_learn_what_one_learns() {
    run(&["--dtype", "both"]);
}

#[test]
fn three_threads_learn_what_one_learns() {
    run(&["--dtype", "f32", "--ranks", "3", "--threads"]);
}

#[test]
fn too_little_training_is_a_failure() {
    let out = Command::new(env!("CARGO_BIN_EXE_train_digits"))
        .args(["--threads", "--ranks", "1", "--epochs", "1", "--dtype", "f32"])
        .output()
        .expect("the program starts");
    assert_eq!(out.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&out.stderr).contains("accuracy"));
}
