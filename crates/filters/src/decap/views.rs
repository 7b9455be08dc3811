//! Views for packets out of tunnels: the same memory, with the link type and the tunnels of the packets. So the
//! tunnels travel with each block at no cost.
//!
//! A table has a limited number of views. Beyond [`DECAP_TUNNELS`] tunnels, later ones are told apart by their ends
//! alone, then by their kinds, in the end not at all. Each of their packets is counted.

use crate::parts::select::{Links, ViewKey};
use base::limits::DECAP_TUNNELS;
use buffer::{Interface, ViewId};
use filter::prelude::*;
use packet::link::LinkType;
use packet::tunnel::stack;
use std::collections::HashMap;

#[derive(Default)]
pub(super) struct Views {
    /// Per view of incoming packets: the views made for link type and stack.
    known: HashMap<ViewKey, HashMap<Vec<u8>, ViewId>>,
    count: usize,
    /// The last lookup.
    last: Option<(ViewKey, ViewId)>,
    last_key: Vec<u8>,
    /// Link type and stack of the current lookup.
    key: Vec<u8>,
}

impl Views {
    /// The view for packets of this link type out of these tunnels, in the memory of `block`; `None`: no view is left.
    #[inline]
    pub fn of(&mut self, block: &Descriptor, link: LinkType, stack: &[u8], cx: &mut Context<'_>) -> Option<ViewId> {
        let from = Links::key_of(block);
        let is_last = self.last_key.split_first_chunk() == Some((&link.0.to_le_bytes(), stack));
        match self.last {
            Some((known, view)) if known == from && is_last => Some(view),
            _ => self.find(block, link, stack, cx),
        }
    }

    #[inline(never)]
    fn find(&mut self, block: &Descriptor, link: LinkType, stack: &[u8], cx: &mut Context<'_>) -> Option<ViewId> {
        let from = Links::key_of(block);
        // With all detail, with the ends of the tunnels, with their kinds, with none.
        const TOLD: [usize; 4] =
            [DECAP_TUNNELS, DECAP_TUNNELS + DECAP_TUNNELS / 4, DECAP_TUNNELS + DECAP_TUNNELS / 2, usize::MAX];
        for (told, most) in TOLD.into_iter().enumerate() {
            self.key.clear();
            self.key.extend(link.0.to_le_bytes());
            match told {
                0 => self.key.extend(stack),
                1 | 2 => stack::append_reduced(stack, told == 1, &mut self.key),
                _ => {}
            }
            let known = self.known.get(&from).and_then(|views| views.get(&self.key)).copied();
            let view = match known {
                Some(view) => view,
                None => match self.make(block, link, most, cx) {
                    Some(view) => view,
                    None => continue,
                },
            };
            if told > 0 {
                cx.count("packets whose tunnels are not told apart", 1);
            } else {
                self.last = Some((from, view));
                self.last_key.clone_from(&self.key);
            }
            return Some(view);
        }
        None
    }

    /// Makes a view for `key` if there are fewer than `most`.
    fn make(&mut self, block: &Descriptor, link: LinkType, most: usize, cx: &mut Context<'_>) -> Option<ViewId> {
        if self.count >= most {
            self.forget(cx);
        }
        if self.count >= most {
            return None;
        }
        let stack = self.key.get(2..).filter(|stack| !stack.is_empty());
        let interface = Interface {
            link_type: Some(link.0),
            tunnels: stack.map(Into::into),
            ..Interface::clone(cx.rings.interface(block)?)
        };
        let view = cx.rings.view_beside(block, interface)?;
        self.known.entry(Links::key_of(block)).or_default().insert(self.key.clone(), view);
        self.count += 1;
        Some(view)
    }

    /// Forgets views of memory that is gone: of captures that were read to the end.
    #[cold]
    fn forget(&mut self, cx: &Context<'_>) {
        let is_there = |view: &ViewId| cx.rings.interface(&view.block(0, 0)).is_some();
        self.known.retain(|_, views| {
            views.retain(|_, view| is_there(view));
            !views.is_empty()
        });
        self.count = self.known.values().map(HashMap::len).sum();
        self.last = None;
    }
}
