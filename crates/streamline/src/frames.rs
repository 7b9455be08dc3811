//! A request's frames as a capture, for programs that read captures. Adds one filter to the request's end, which writes
//! the last path's blocks to the session's output. Not a parser: `request` finds that path.

use request::{Diagnostic, Item, Notation};

/// Gives the request with a last filter that writes pcapng to the session's output.
///
/// `expression` names a variable that holds a tcpdump expression; only matching frames are written. `None`: all frames
/// are.
///
/// Fails when `source` is no request, or has no path. Whether frames come out of the path is checked when the request
/// is prepared.
pub fn to_output(source: &str, expression: Option<&str>) -> Result<String, Diagnostic> {
    let text = request::parse(source)?;
    let last = text.items.iter().rev().find_map(|item| match item {
        Item::Path(par) => Some(par.span),
        Item::Let { .. } | Item::Set { .. } => None,
    });
    let Some(span) = last else {
        let end = request::Span { start: source.len(), end: source.len() };
        return Err(Diagnostic::new("the request has no path", end).with_label("nothing gives frames"));
    };
    let (before, path, behind) = (&source[..span.start], &source[span.start..span.end], &source[span.end..]);
    let ways = match text.notation {
        Notation::Pipe => ["{ ", " }", " | ", "bpf $", "", "save - format=pcapng"],
        Notation::Paper => ["( ", " )", " > ", "(bpf,expr=$", ")", "(save,file=-,format=pcapng)"],
    };
    let [open, close, arrow, bpf, end, save] = ways;
    let filter = expression.map(|name| format!("{arrow}{bpf}{name}{end}")).unwrap_or_default();
    Ok(format!("{before}{open}{path}{close}{filter}{arrow}{save}{behind}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_path_goes_on() {
        let rows = [
            ("pcap x", "{ pcap x } | save - format=pcapng"),
            ("pcap a + pcap b", "{ pcap a + pcap b } | save - format=pcapng"),
            ("let x = pcap a; x | head 3;", "let x = pcap a; { x | head 3 } | save - format=pcapng;"),
            ("pcap a | json; pcap b # c", "pcap a | json; { pcap b } | save - format=pcapng # c"),
            ("(pcap,file=x) | (pcap,y)", "( (pcap,file=x) | (pcap,y) ) > (save,file=-,format=pcapng)"),
        ];
        for (source, expected) in rows {
            assert_eq!(to_output(source, None).unwrap(), expected);
            assert!(request::parse(expected).is_ok(), "{expected}");
        }
    }

    #[test]
    fn an_expression_stands_between() {
        let rows = [
            ("pcap x", "{ pcap x } | bpf $e | save - format=pcapng"),
            ("(pcap,x)", "( (pcap,x) ) > (bpf,expr=$e) > (save,file=-,format=pcapng)"),
        ];
        for (source, expected) in rows {
            assert_eq!(to_output(source, Some("e")).unwrap(), expected);
            assert!(request::parse(expected).is_ok(), "{expected}");
        }
    }

    #[test]
    fn what_is_no_request_is_an_error() {
        for source in ["", "let x = pcap a", "pcap a |"] {
            assert!(to_output(source, None).is_err(), "{source}");
        }
    }
}
