//! `streamline man`: the manual page of the program, with every filter in it, or of one subcommand or filter.

use crate::commands::filters::{Examples, describe};
use crate::exit::{CommandError, Outcome};
use crate::{Cli, fold, print_data};
use clap::CommandFactory;
use clap_mangen::Man;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::process::{Command, Stdio};
use streamline::registry;

/// Show the manual page, or that of a subcommand or filter
///
/// On a terminal `man` shows it, with its pager; elsewhere the page's source is printed: streamline man run > streamline-run.1
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Of this subcommand or filter only, such as `run`, `pipe create` or `http`
    name: Vec<String>,

    /// Name every page, as a package needs them
    #[arg(long, conflicts_with = "name")]
    list: bool,
}

/// The language on a page; crates/request/grammar.md has all of it.
const LANGUAGE: &str = "\
a | b            b gets the blocks of a
a | { b + c }    both get every block; { a + b } | c joins; split | { b + c } gives each block to one of them
port | |22 ssh   class selector: what the last class-setting filter said; |22:80 a range, |!22 all others,
                 |! what no other edge beside it takes: port | { |22 a + |80 b + |! rest }
not a, a and b, a or b      choose with selectors; not binds tighter than and, and tighter than or (tcpdump gives
                 and, or equal rank)
a || b           a and b on threads of their own
name value key=value        the first value needs no key; flags are key=yes; values with blanks in \"double quotes\"
f spread=2       two threads run f, each with a part of the blocks; order is kept
f isolate=yes    a process of its own runs f, and can do nothing else; restart=yes: another one, where it died
f name=x ... @x  a node with a name, and a path that goes on from it or into it
let web = http | files dir=out; pcap x | web        a piece of a request
set workers=1 latency=1ms for=10s     settings of the request; workers=N, pipeline or auto; for: how long it runs
$x, ${x}         filled by -D x=value
# ...            a comment
Sizes: k M G are 1024, 1024^2, 1024^3; numbers: 1000, 1000^2, 1000^3; durations: ns us ms s min h.
A path that ends in records gets json, one that ends in anything else inspect. On a terminal these are columns
(inspect format=table; of frames, behind packets), unless run --json says otherwise.
Blocks are frames (of the link layer), packets (without it), bytes (an ordered stream), messages or records.";

fn push_plain(text: &mut String, title: &str, lines: &str) {
    let _ = writeln!(text, ".SH {title}\n.nf");
    push_lines(text, lines);
    text.push_str(".fi\n");
}

fn push_lines(text: &mut String, lines: &str) {
    for line in lines.lines() {
        // A line that begins with a dot or quote would be a command to the formatter.
        let guard = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
        let _ = writeln!(text, "{guard}{}", line.replace('\\', "\\e").replace('-', "\\-"));
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    if args.list {
        let mut names = String::new();
        push_names(&mut names, "streamline", &Cli::command());
        return print_data(&names);
    }
    let page = page(&args.name)?;
    if std::io::stdout().is_terminal() { show(&page) } else { print_data(&page) }
}

/// Writes a line for each page: the command.
fn push_names(names: &mut String, name: &str, command: &clap::Command) {
    let _ = writeln!(names, "{name}");
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        push_names(names, &format!("{name} {}", below.get_name()), below);
    }
}

fn page(words: &[String]) -> Result<String, CommandError> {
    let cli = Cli::command();
    let registry = registry();
    let command = words.iter().try_fold(&cli, |command, word| command.find_subcommand(word));
    let filter = if let [name] = words { registry.find(name) } else { None };
    let rendered = |page: Man| {
        let mut text = Vec::new();
        let made = page.render(&mut text);
        made.map_err(|error| CommandError::Failed(format!("cannot make the manual page: {error}")))?;
        Ok::<_, CommandError>(String::from_utf8_lossy(&text).into_owned())
    };
    let mut text = match (command, filter) {
        (None, None) => return Err(unknown(words, &cli)),
        (None, Some(kind)) => format!(".TH streamline-{} 1 \"\" \"streamline {VERSION}\"\n", kind.name),
        (Some(_), _) if words.is_empty() => rendered(Man::new(cli))?,
        (Some(command), _) => rendered(Man::new(command.clone().name(format!("streamline-{}", words.join("-")))))?,
    };
    if let Some(kind) = filter {
        push_plain(&mut text, &format!("FILTER {}", kind.name), &describe(kind, Examples::Full, COLUMNS));
    }
    if words.is_empty() {
        push_plain(&mut text, "REQUESTS", &fold::folded(LANGUAGE, Some(COLUMNS)));
        text.push_str(".SH FILTERS\n");
        for kind in registry.kinds() {
            let _ = writeln!(text, ".SS {}\n.nf", kind.name);
            push_lines(&mut text, &describe(kind, Examples::Full, COLUMNS));
            text.push_str(".fi\n");
        }
    }
    Ok(text)
}

/// The longest lines of text that `man` does not fill: on a terminal of 80 columns it indents them by 7.
const COLUMNS: usize = 72;

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn unknown(words: &[String], cli: &clap::Command) -> CommandError {
    let name = words.join(" ");
    let visible = cli.get_subcommands().filter(|command| !command.is_hide_set()).map(clap::Command::get_name);
    let kinds = registry().kinds();
    let names = visible.chain(kinds.iter().map(|kind| kind.name));
    let near = request::nearest(&name, names).map_or(String::new(), |near| format!("; did you mean `{near}`?"));
    CommandError::Wrong(format!("there is no command or filter `{name}`{near}"))
        .with_help("`streamline --help` lists the commands, `streamline filters` the filters")
}

/// Shows a page on the terminal: by `man`, else as plain text by a pager, else all at once.
fn show(page: &str) -> Outcome {
    let text = plain(page);
    let pager = std::env::var("PAGER").ok().filter(|pager| !pager.is_empty()).unwrap_or_else(|| "less".into());
    let ways = [(&["man", "-l", "-"][..], page), (&["sh", "-c", &pager], &text)];
    for (words, shown) in ways {
        let mut command = Command::new(words[0]);
        if let Ok(mut child) = command.args(&words[1..]).stdin(Stdio::piped()).stderr(Stdio::null()).spawn() {
            if let Some(mut stdin) = child.stdin.take() {
                // The pager may end before it has read everything.
                let _ = stdin.write_all(shown.as_bytes());
            }
            if child.wait()?.success() {
                return Ok(());
            }
        }
    }
    print_data(&text)
}

/// A page without the formatter's commands.
fn plain(page: &str) -> String {
    let mut text = String::new();
    for line in page.lines() {
        let line = match line.split_once(' ') {
            Some((".SH" | ".SS", title)) => format!("\n{title}"),
            _ if line.starts_with(['.', '\'']) => continue,
            _ => line.to_string(),
        };
        let marks = ["\\fB", "\\fI", "\\fR", "\\&"];
        let line = marks.iter().fold(line, |line, mark| line.replace(mark, ""));
        let _ = writeln!(text, "{}", line.replace("\\-", "-").replace("\\*(Aq", "'").replace("\\e", "\\"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_filter_and_command_has_a_page() {
        for kind in registry().kinds() {
            assert!(page(&[kind.name.into()]).unwrap().contains(&format!("FILTER {}", kind.name)));
        }
        let both = page(&["pcap".into()]).unwrap();
        assert!(both.contains(".SH SYNOPSIS") && both.contains("FILTER pcap"), "a command and a filter: {both}");
        assert!(page(&["pipe".into(), "create".into()]).unwrap().contains("streamline\\-pipe\\-create"));
        let Err(CommandError::Wrong(text)) = page(&["htpp".into()]) else { panic!("there is none") };
        assert!(text.starts_with("there is no command or filter `htpp`; did you mean `http`?"), "{text}");
    }

    #[test]
    fn without_a_formatter_a_page_is_text() {
        for name in [vec![], vec!["run".to_string()], vec!["http".to_string()]] {
            let text = plain(&page(&name).unwrap());
            let is_command = |line: &str| line.starts_with(".") && line[1..].starts_with(char::is_uppercase);
            assert!(text.lines().all(|line| !is_command(line) && !line.contains("\\-")), "{text}");
            assert!(text.contains("streamline run 'pcap") || text.contains("--stats"), "{text}");
        }
    }
}
