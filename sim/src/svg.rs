//! A run as a space-time diagram: clients, brokers and the store stand side by side, time goes down, messages are arrows,
//! faults are marked.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::history::{At, Event};
use crate::trace::{Party, Trace, clock};

/// Pixels between two neighbours.
const COLUMN: i64 = 150;
/// Pixels that each moment with an event takes: time is not to scale, or nights would be miles long.
const ROW: i64 = 14;
const TOP: i64 = 40;

/// The diagram as an SVG document.
pub fn draw(trace: &Trace) -> String {
    let columns = columns(trace);
    let rows = rows(trace);
    let height = TOP + ROW * (rows.len() as i64 + 2);
    let width = COLUMN * (columns.len() as i64 + 3);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"monospace\" \
         font-size=\"9\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<defs><marker id=\"head\" viewBox=\"0 0 6 6\" \
         refX=\"6\" refY=\"3\" markerWidth=\"6\" markerHeight=\"6\" orient=\"auto\"><path d=\"M0 0L6 3L0 6z\"/></marker></defs>\n"
    );
    for (party, column) in &columns {
        let x = COLUMN * (column + 1);
        let name = match party {
            Party::Client(number) => format!("client {number}"),
            Party::Broker(number) => format!("broker {number}"),
            Party::Store => "store".to_owned(),
        };
        let _ = writeln!(svg, "<text x=\"{x}\" y=\"20\" text-anchor=\"middle\" font-size=\"12\">{name}</text>");
        let _ = writeln!(svg, "<line x1=\"{x}\" y1=\"{TOP}\" x2=\"{x}\" y2=\"{height}\" stroke=\"#bbb\"/>");
    }
    let y = |at: At| TOP + ROW * rows.range(..=at).next_back().map_or(0, |(_, row)| *row);
    let x = |party: Party| COLUMN * (columns.get(&party).copied().unwrap_or(0) + 1);
    for (at, row) in &rows {
        let _ = writeln!(svg, "<text x=\"4\" y=\"{}\" fill=\"#888\">{}</text>", TOP + ROW * row + 3, clock(*at));
    }
    for arrow in &trace.arrows {
        let (from, to) = (arrow.from, arrow.to);
        let (x1, y1, x2, y2) = (x(from.0), y(from.1), x(to.0), y(to.1));
        let style = match arrow.lost {
            true => "stroke=\"#c00\" stroke-dasharray=\"3 2\"",
            false => "stroke=\"#444\" marker-end=\"url(#head)\"",
        };
        let _ = writeln!(svg, "<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" {style}/>");
        let (x, y) = ((x1 + x2) / 2, (y1 + y2) / 2 - 2);
        let _ = writeln!(
            svg,
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\" fill=\"#06c\">{}</text>",
            escaped(&arrow.label)
        );
    }
    for record in &trace.records {
        let y = y(record.at);
        let broker = x(Party::Broker(record.host.0 as u8));
        match &record.event {
            Event::Fault(fault) => {
                let text = escaped(&format!("{fault:?}"));
                let _ = writeln!(
                    svg,
                    "<rect x=\"{}\" y=\"{}\" width=\"8\" height=\"8\" fill=\"#c00\"/>",
                    broker - 4,
                    y - 4
                );
                let _ = writeln!(svg, "<text x=\"{}\" y=\"{}\" fill=\"#c00\">{text}</text>", broker + 8, y + 3);
            }
            Event::Commit(commit) => {
                let store = x(Party::Store);
                let _ = writeln!(
                    svg,
                    "<line x1=\"{broker}\" y1=\"{y}\" x2=\"{store}\" y2=\"{y}\" stroke=\"#080\" marker-end=\"url(#head)\"/>"
                );
                let text = format!("commit {}: {} writes", commit.serial, commit.writes.len());
                let _ = writeln!(svg, "<text x=\"{}\" y=\"{}\" fill=\"#080\">{text}</text>", store + 6, y + 3);
            }
            Event::Phase(phase) => {
                let _ = writeln!(
                    svg,
                    "<line x1=\"0\" y1=\"{y}\" x2=\"{width}\" y2=\"{y}\" stroke=\"#06c\" stroke-dasharray=\"6 4\"/>"
                );
                let _ = writeln!(svg, "<text x=\"{}\" y=\"{}\" fill=\"#06c\">{phase:?}</text>", width - COLUMN, y - 2);
            }
            Event::Owner(owner) => {
                let text = escaped(&format!("slot {} {:?} (epoch {})", owner.slot, owner.change, owner.epoch));
                let _ = writeln!(svg, "<text x=\"{}\" y=\"{}\" fill=\"#808\">{text}</text>", broker + 8, y + 3);
            }
            Event::Fail(_) | Event::Unknown => {
                let client = x(Party::Client(record.client.0));
                let _ = writeln!(svg, "<circle cx=\"{client}\" cy=\"{y}\" r=\"3\" fill=\"#c00\"/>");
            }
            Event::Invoke(_) | Event::Ok(_) | Event::Lost { .. } => {}
        }
    }
    svg + "</svg>\n"
}

/// Who stands where, from the left.
fn columns(trace: &Trace) -> BTreeMap<Party, i64> {
    let clients = (1..trace.clients).map(Party::Client);
    let brokers = (0..trace.brokers).map(Party::Broker);
    clients.chain(brokers).chain([Party::Store]).zip(0..).collect()
}

/// Moments at which something happens, from the top.
fn rows(trace: &Trace) -> BTreeMap<At, i64> {
    let records = trace.records.iter().map(|record| record.at);
    let arrows = trace.arrows.iter().flat_map(|arrow| [arrow.from.1, arrow.to.1]);
    let mut moments: Vec<At> = records.chain(arrows).collect();
    moments.sort_unstable();
    moments.dedup();
    moments.into_iter().zip(1..).collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
