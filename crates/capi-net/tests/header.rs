//! The header that is checked in is the one that the sources give.

use std::path::Path;

#[test]
fn the_header_says_what_the_sources_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    // Without asking cargo for metadata: the sources are all there is to see.
    let made = cbindgen::Builder::new()
        .with_config(config)
        .with_src(root.join("src/options.rs"))
        .with_src(root.join("src/outcome.rs"))
        .with_src(root.join("src/sockets.rs"))
        .generate()
        .expect("the sources can be read");
    let mut text = Vec::new();
    made.write(&mut text);
    let text = String::from_utf8(text).unwrap();
    let file = root.join("include/streamline_net.h");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    let checked_in = std::fs::read_to_string(&file).unwrap();
    assert!(checked_in == text, "run `UPDATE=1 cargo test -p capi-net --test header`; the sources give:\n{text}");
}
