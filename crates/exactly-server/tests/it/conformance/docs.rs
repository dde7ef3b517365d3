//! The docs say what the program says.

use std::path::PathBuf;

use super::process::exactly;

fn page() -> String {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "..", "docs", "conformance.md"]
        .iter()
        .collect();
    std::fs::read_to_string(path).unwrap()
}

#[tokio::test]
async fn the_docs_list_the_rules_as_they_are() {
    let table = exactly(&["conformance", "--list", "--markdown"]).await.stdout;
    let table = String::from_utf8(table).unwrap();
    assert!(
        page().contains(&table),
        "docs/conformance.md: put the output of `exactly conformance --list --markdown` in place of its table"
    );
}

#[tokio::test]
async fn the_settings_in_the_docs_are_ones_that_the_server_takes() {
    let page = page();
    let settings = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
    let settings = settings.expect("a block of settings");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), settings).unwrap();
    let output = exactly(&["check-config", file.path().to_str().unwrap()]).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for name in [
        "required",
        "field",
        "alias",
        "uuid",
        "off",
        "leave-out",
        "short",
        "secret",
        "rerunnable",
        "impatient",
    ] {
        assert!(settings.contains(&format!("\"/effects/{name}\"")), "{name}");
    }
}
