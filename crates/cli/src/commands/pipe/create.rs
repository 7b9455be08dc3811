//! `streamline pipe create`, and the keeper process that it starts.

use super::options;
use crate::exit::{CommandError, Outcome};
use buffer::keeper::client::Named;
use buffer::keeper::place;
use buffer::keeper::policy::{Policy, Reach};
use buffer::keeper::server::{Keeper, RingOptions};
use buffer::ring::RingKind;
use buffer::ring::memory::{Geometry, PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MIN, SLOTS_MAX};
use buffer::shared::segment::Pages;
use filter::{Param, ParamType, Params};
use std::io::Read;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Make a ring; it lives in a process of its own until `rm`
#[derive(clap::Args)]
#[command(after_help = options::help(OPTIONS))]
pub(super) struct Args {
    /// The ring's name
    name: String,

    /// Options, as key=value
    options: Vec<String>,
}

/// Keep a ring (what `create` starts)
#[derive(clap::Args)]
#[command(hide = true)]
pub(super) struct KeepArgs {
    name: String,
    options: Vec<String>,

    /// The process for which the policy's `process` stands
    #[arg(long)]
    owner: i32,
}

const WHO: ParamType = ParamType::Choice(&["process", "user", "group", "other"]);

const OPTIONS: &[Param] = &[
    Param::new("size", ParamType::Size, "bytes in the ring, rounded up to a power of two").default("1M"),
    Param::new(
        "kind",
        ParamType::Choice(&["c", "p", "v", "d"]),
        "c: a stream of bytes; p: blocks in slots of one size; v: blocks behind their length; d: blocks with descriptors",
    )
    .default("d"),
    Param::new("slots", ParamType::Number, "blocks in a d- or p-ring; 0: one for each 512 bytes").default("0"),
    Param::new("pages", ParamType::Choice(&["normal", "huge"]), "huge: pages of 2 MiB, where the system has some")
        .default("normal"),
    Param::new("read", WHO, "users who may read with on-full=overwrite and shared; process: only root and the process that ran `create`: a program, or a shell that then calls `exec streamline pipe read NAME`")
        .default("user"),
    Param::new("hold", WHO, "those of them who may also read with on-full=wait and drop-newest").default("user"),
    Param::new("write", WHO, "users who may write, and remove the ring").default("user"),
    Param::new("hold-limit", ParamType::Duration, "a reader that holds the full ring for longer, and takes less than an eighth of it, is overtaken; no limit if not given"),
    Param::new("keep-open", ParamType::Flag, "readers wait for the next writer when one closes").default("no"),
    Param::new("while-used", ParamType::Flag, "the ring goes with its last user, or a second later").default("no"),
];

fn ring_options(params: &Params) -> Result<RingOptions, CommandError> {
    let word = |key| params.text(key).unwrap_or_default();
    let reach = |key| word(key).parse::<Reach>().map_err(CommandError::Wrong);
    let kind: RingKind = word("kind").parse().map_err(CommandError::Wrong)?;
    let (size, slots) = (params.number("size").unwrap_or(0), params.number("slots").unwrap_or(0));
    let wrong = |text: String| Err(CommandError::Wrong(text));
    if size > PAYLOAD_BYTES_MAX {
        return wrong(format!("size: a ring has at most {}G", PAYLOAD_BYTES_MAX >> 30));
    }
    if slots > SLOTS_MAX {
        return wrong(format!("slots: a ring has at most {SLOTS_MAX}"));
    }
    if slots > 0 && matches!(kind, RingKind::C | RingKind::V) {
        return wrong(format!(
            "slots: a {}-ring has none; leave it out, or make it with kind=d or kind=p",
            kind.name()
        ));
    }
    if params.number("hold-limit") == Some(0) {
        return wrong(
            "hold-limit: with 0 no reader could hold the ring; readers get that with on-full=overwrite".to_string(),
        );
    }
    Ok(RingOptions {
        geometry: Geometry::new(kind, size, slots),
        pages: if word("pages") == "huge" { Pages::HugeIfThere } else { Pages::Normal },
        policy: Policy { read: reach("read")?, hold: reach("hold")?, write: reach("write")? },
        hold: params.number("hold-limit").map(Duration::from_nanos),
        keep_open: params.flag("keep-open"),
        while_used: params.flag("while-used"),
    })
}

pub(super) fn run(args: &Args) -> Outcome {
    // Report errors of the command line before a process starts.
    let params = options::parse(&args.options, OPTIONS)?;
    let ring_options = ring_options(&params)?;
    // The writer maps the whole ring and touches each page.
    let bytes = ring_options.geometry.payload_bytes;
    if let Some(free) = base::memory::available().filter(|free| bytes > *free) {
        let (bytes, free) = (crate::progress::size(bytes), crate::progress::size(free));
        return Err(CommandError::Failed(format!(
            "a ring of {bytes} does not fit into the {free} of memory that are free"
        )));
    }
    let with = super::with(&args.name);
    let named = Named::at(&args.name).map_err(&with)?;
    let failed = |error| CommandError::Failed(format!("cannot start the ring's keeper: {error}"));
    let program = std::env::current_exe().map_err(failed)?;
    // The keeper runs in `/`, so that it keeps no folder busy. So its path must begin at the root, without components
    // that may be gone when the ring is removed.
    let path = match (named.path().parent(), named.path().file_name()) {
        (Some(folder), Some(file)) if args.name.contains('/') => {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            let folder = folder
                .canonicalize()
                .map_err(|error| CommandError::Failed(format!("{}: the folder of its socket: {error}", args.name)))?;
            folder.join(file)
        }
        (_, None) => return Err(CommandError::Wrong(format!("`{}` is the path of no file", args.name))),
        _ => PathBuf::from(&args.name),
    };
    let owner = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    let mut keeper = Command::new(program)
        .args(["pipe", "keep", "--owner", &owner.to_string()])
        .arg(path)
        .args(&args.options)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    // The keeper closes its standard error once the ring exists, or else writes the error there.
    let mut said = String::new();
    if let Some(mut stderr) = keeper.stderr.take() {
        stderr.read_to_string(&mut said).map_err(failed)?;
    }
    if !said.is_empty() {
        return Err(CommandError::Failed(said.trim().trim_start_matches("error: ").to_string()));
    }
    // A greeting, not a question for the state: the policy may refuse this process the state (`read=process`).
    named.greet().map_err(|error| CommandError::Failed(format!("the ring's keeper does not answer: {error}")))?;
    tell_rounded(&args.name, &params, &ring_options.geometry);
    Ok(())
}

/// Says where the ring differs from the options.
fn tell_rounded(name: &str, params: &Params, made: &Geometry) {
    let (size, slots) = (params.number("size").unwrap_or(0), params.number("slots").unwrap_or(0));
    if made.payload_bytes != size {
        let (has, least) = (crate::progress::size(made.payload_bytes), crate::progress::size(PAYLOAD_BYTES_MIN));
        tell!("note: {name}: the ring has {has}: a size is a power of two, and {least} at least");
    }
    if slots > 0 && made.slots != slots {
        tell!("note: {name}: the ring has {} slots: their number is a power of two", made.slots);
    }
}

/// The keeper process: makes the ring, detaches itself from its parent, and answers until the ring is removed. A signal
/// that asks it to stop makes it remove the ring itself.
pub(super) fn keep(args: &KeepArgs) -> Outcome {
    let ring_options = ring_options(&options::parse(&args.options, OPTIONS)?)?;
    let with = super::with(&args.name);
    let path = place::socket(&args.name).map_err(&with)?;
    let mut keeper = Keeper::create(&path, ring_options).map_err(&with)?;
    keeper.set_owner_process(args.owner);
    let asked = crate::signals::descriptor().map_err(&with)?;
    // Its own session: the terminal's signals and hangup are not meant for it. An error means only that it already leads one.
    let _ = rustix::process::setsid();
    let null = std::fs::File::options().write(true).open("/dev/null").map_err(&with)?;
    if let Err(error) = super::confine::drop_capabilities() {
        keeper.remove();
        return Err(with(error));
    }
    rustix::stdio::dup2_stderr(&null).map_err(|error| with(error.into()))?;
    super::confine::confine(path.parent().unwrap_or(Path::new(".")));
    keeper.run_until(asked.as_fd()).map_err(with)
}
