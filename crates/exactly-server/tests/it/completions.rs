//! Completion scripts.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::binary::exactly;

#[test]
fn every_shell_has_a_script_that_knows_the_commands() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let ran = exactly(&["completions", shell]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{shell}");
        for word in ["serve", "check-config", "conformance", "upstream"] {
            assert!(ran.out.contains(word), "{shell}: {word}");
        }
    }
}

#[test]
fn a_shell_can_read_its_script() {
    let script = exactly(&["completions", "bash"]).out;
    let read = format!("{script}\ncomplete -p exactly");
    let mut bash = Command::new("bash");
    let mut bash = bash.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    bash.stdin.take().unwrap().write_all(read.as_bytes()).unwrap();
    let output = bash.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("_exactly"));
}
