//! The packets that a reader may see: its trust group, and what that group may see of a device. Rights on devices are
//! elsewhere: the daemon's policy decides on them.
//!
//! Every reader of a ring can see the whole ring, whatever it asked for. So packets that a group may not see never get
//! into its rings: each expression there is the group's expression and the reader's own.

use crate::attachment::{Device, ETHERNET, RAW_IP};
use crate::capture_request::{CaptureError, CaptureErrorKind, PROGRAM_INSTRUCTIONS};
use program::Compile;
use program::ir::Program;
use std::sync::Arc;

/// Link types that a limited group may see: with an Ethernet header, and without any header.
const LINK_TYPES: [u16; 2] = [ETHERNET, RAW_IP];

/// Most characters of an expression that a message quotes.
const TOLD: usize = 200;

/// What a reader may see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permission {
    /// Readers of one group may see each other's packets. All permissions of a group are the same.
    pub group: u32,
    /// The part of a device that the group may see; `None`: everything.
    pub only: Option<Arc<Only>>,
}

/// For a group that may see everything.
impl From<u32> for Permission {
    fn from(group: u32) -> Permission {
        Permission { group, only: None }
    }
}

impl Permission {
    /// The part of `device` that the group may see; `None`: everything.
    pub(crate) fn shown(&self, device: &Device) -> Result<Option<Shown>, CaptureError> {
        self.only.as_ref().map(|only| only.of(device)).transpose()
    }
}

/// An expression that limits what is shown of devices of any link type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Only {
    text: String,
    /// By LINKTYPE number: the program, or why there is none.
    programs: Vec<(u16, Result<Arc<Program>, String>)>,
}

impl Only {
    /// Compiles an expression. Fails if it is invalid for all link types. May ask the network for names of hosts.
    pub fn new(text: &str, compiler: &dyn Compile) -> Result<Only, String> {
        let mut told: String = text.chars().take(TOLD).collect();
        if told.len() < text.len() {
            told += " ...";
        }
        let programs = LINK_TYPES.map(|link_type| (link_type, compile(text, link_type, compiler).map(Arc::new)));
        match &programs[0].1 {
            Err(why) if programs.iter().all(|(_, program)| program.is_err()) => Err(why.clone()),
            _ => Ok(Only { text: told, programs: programs.to_vec() }),
        }
    }

    fn of(&self, device: &Device) -> Result<Shown, CaptureError> {
        let Device { name, link_type, .. } = device;
        let known = self.programs.iter().find(|(known, _)| known == link_type);
        let why = match known {
            Some((_, Ok(program))) => return Ok(Shown { text: self.text.clone(), program: Arc::clone(program) }),
            Some((_, Err(why))) => why.clone(),
            None => format!("a policy has no expressions for link type {link_type}"),
        };
        let text = format!(
            "the daemon's policy shows of `{name}` only what `{}` passes, which cannot be asked of its frames: {why}",
            self.text
        );
        Err(CaptureError::new(CaptureErrorKind::Denied, text))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Shown {
    text: String,
    program: Arc<Program>,
}

impl Shown {
    /// The limiting program alone.
    pub(crate) fn program(&self) -> Arc<Program> {
        Arc::clone(&self.program)
    }

    /// The limiting program joined with a reader's own; `None`: without one.
    pub(crate) fn also(&self, own: Option<Arc<Program>>) -> Result<Arc<Program>, CaptureError> {
        let Some(own) = own else { return Ok(self.program()) };
        let both = self.program.and_then(&own);
        match both.map(|both| (program::to_cbpf(&both).len(), both)) {
            Ok((length, both)) if length <= PROGRAM_INSTRUCTIONS => Ok(Arc::new(both)),
            // No longer than a single program may be. A reader can ask for less and filter again by itself.
            _ => {
                let text = format!(
                    "the expression takes more than {PROGRAM_INSTRUCTIONS} instructions together with the policy's `{}`",
                    self.text
                );
                Err(CaptureError::new(CaptureErrorKind::Cannot, text))
            }
        }
    }

    /// A note for readers of this device.
    pub(crate) fn note(&self, device: &str) -> String {
        format!("the daemon's policy shows of `{device}` only what `{}` passes", self.text)
    }

    /// A note for the state of the device's ring.
    pub(crate) fn how(&self) -> String {
        format!("; only what `{}` passes", self.text)
    }
}

fn compile(text: &str, link_type: u16, compiler: &dyn Compile) -> Result<Program, String> {
    let code = compiler.compile(text, link_type, 0).map_err(|error| error.message)?;
    if code.len() > PROGRAM_INSTRUCTIONS {
        return Err(format!("it takes {} instructions; at most {PROGRAM_INSTRUCTIONS}", code.len()));
    }
    let program = program::from_cbpf(&code).map_err(|error| error.to_string())?;
    // Not every writer can run programs that jump back.
    if program.repeats() { Err("it repeats (`protochain`), which the kernel cannot run".into()) } else { Ok(program) }
}
