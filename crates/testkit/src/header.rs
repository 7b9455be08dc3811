//! Headers for C: the checked-in header must equal the one made from the sources.

/// Compares a crate's header with the output of `cbindgen` (a dev-dependency of the calling crate) for these sources.
/// `UPDATE=1` writes the header.
#[macro_export]
macro_rules! check_header {
    ($header:literal, $($source:literal),+) => {{
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
        // Without cargo's metadata: the sources are enough.
        let builder = cbindgen::Builder::new().with_config(config)$(.with_src(root.join($source)))+;
        let made = builder.generate().expect("the sources can be read");
        let mut text = Vec::new();
        made.write(&mut text);
        let text = String::from_utf8(text).unwrap();
        let file = root.join("include").join($header);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&file, &text).unwrap();
        }
        let checked_in = std::fs::read_to_string(&file).unwrap();
        let package = env!("CARGO_PKG_NAME");
        assert!(checked_in == text, "run `UPDATE=1 cargo test -p {package} header`; the sources give:\n{text}");
    }};
}
