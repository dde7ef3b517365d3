//! Published test vectors. They are data of others and not part of the project, so a test that reads them passes without
//! them and says so.

use std::path::{Path, PathBuf};

/// The folder of one set of vectors, if it is there.
pub(crate) fn folder(set: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/vectors")
        .join(set);
    if folder.is_dir() {
        return Some(folder);
    }
    println!(
        "skipped: the folder of published vectors {} is absent",
        folder.display()
    );
    None
}
