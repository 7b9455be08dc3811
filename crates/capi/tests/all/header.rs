//! The checked-in header equals the one made from the sources.

#[test]
fn the_header_says_what_the_sources_say() {
    testkit::check_header!("streamline.h", "src/pipe.rs");
}
