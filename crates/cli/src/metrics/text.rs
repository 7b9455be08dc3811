//! The text of OpenMetrics 1.0 (openmetrics.io): families of samples with labels.

use std::fmt::Write;

/// The media type of the text.
pub(super) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What a family counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Only rises, until the process or request begins again. Its samples end in `_total`.
    Counter,
    Gauge,
    /// A sample of 1 whose labels are the news. It ends in `_info`.
    Info,
}

/// A text under way.
#[derive(Debug, Default)]
pub(super) struct Page(String);

/// A family under way. A family without samples is left out.
pub(super) struct Family<'a> {
    page: &'a mut Page,
    head: Option<(Kind, &'static str)>,
    name: &'static str,
    ending: &'static str,
}

impl Page {
    /// A family. All its samples follow it; no other has its name.
    pub(super) fn family(&mut self, kind: Kind, name: &'static str, help: &'static str) -> Family<'_> {
        let ending = match kind {
            Kind::Counter => "_total",
            Kind::Gauge => "",
            Kind::Info => "_info",
        };
        Family { page: self, head: Some((kind, help)), name, ending }
    }

    /// The whole text.
    pub(super) fn end(mut self) -> String {
        self.0.push_str("# EOF\n");
        self.0
    }
}

impl Family<'_> {
    /// Adds a sample. Two samples of a family have different labels.
    pub(super) fn add(&mut self, labels: &[(&str, &str)], value: u64) {
        let text = &mut self.page.0;
        if let Some((kind, help)) = self.head.take() {
            let kind = match kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Info => "info",
            };
            // Writing to a String cannot fail, here and below.
            let _ = write!(text, "# TYPE {0} {kind}\n# HELP {0} {help}\n", self.name);
        }
        text.push_str(self.name);
        text.push_str(self.ending);
        for (place, (name, value)) in labels.iter().enumerate() {
            let _ = write!(text, "{}{name}=\"", if place == 0 { '{' } else { ',' });
            escape(text, value);
            text.push('"');
        }
        let _ = writeln!(text, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }
}

fn escape(text: &mut String, value: &str) {
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            _ => text.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page() {
        let mut page = Page::default();
        let mut family = page.family(Kind::Counter, "x_blocks", "Blocks.");
        family.add(&[("filter", "bpf \"a\\b\"\n"), ("node", "0")], 7);
        family.add(&[], u64::MAX);
        page.family(Kind::Gauge, "x_empty", "None.");
        page.family(Kind::Info, "x_request", "The request.").add(&[("request", "é")], 1);
        let expected = "\
# TYPE x_blocks counter
# HELP x_blocks Blocks.
x_blocks_total{filter=\"bpf \\\"a\\\\b\\\"\\n\",node=\"0\"} 7
x_blocks_total 18446744073709551615
# TYPE x_request info
# HELP x_request The request.
x_request_info{request=\"é\"} 1
# EOF
";
        assert_eq!(page.end(), expected);
    }
}
