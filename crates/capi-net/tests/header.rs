//! The header that is checked in is the one that the sources give.

#[test]
fn the_header_says_what_the_sources_say() {
    testkit::check_header!("streamline_net.h", "src/options.rs", "src/outcome.rs", "src/sockets.rs");
}
