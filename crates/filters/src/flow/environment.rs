//! Gives the blocks of a flow's stack their capture files and compiled expressions.

use filter::prelude::*;
use packet::LinkType;
use program::cbpf::Instruction;
use stack::{TapFile, TapSink};
use std::fs::File;
use std::io::{BufWriter, Write};

/// Files of this process, and the compiler of the request.
pub(super) struct Files<'a>(pub(super) &'a Env);

impl stack::Env for Files<'_> {
    fn program(&mut self, expression: Option<&str>, link: LinkType) -> Result<Vec<Instruction>, String> {
        let text = expression.ok_or("`bpf` needs an expression")?;
        self.0.compiler.compile(text, link.0, u32::MAX).map_err(|error| error.to_string())
    }

    fn tap(&mut self, path: &str) -> Result<TapFile, String> {
        let file = File::create(path).map_err(|error| format!("{path}: {error}"))?;
        // The stack's clock begins at 0 when the socket is made: now.
        let epoch_ns = capture::clock::real();
        Ok(TapFile { sink: Box::new(Capture { file: Some(BufWriter::new(file)), path: path.into() }), epoch_ns })
    }
}

/// A capture file. After an error it takes no more packets.
struct Capture {
    file: Option<BufWriter<File>>,
    path: String,
}

impl TapSink for Capture {
    fn write(&mut self, parts: &[&[u8]]) {
        let Some(file) = &mut self.file else { return };
        if let Err(error) = parts.iter().try_for_each(|part| file.write_all(part)) {
            eprintln!("warning: {}: {error}; the tap writes nothing more", base::terminal::line(&self.path));
            self.file = None;
        }
    }
}
