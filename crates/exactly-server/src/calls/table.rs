//! Text in columns.

use std::fmt::{self, Write as _};

/// Rows under headings, each column as wide as its widest cell.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<const N: usize>(headings: [&str; N]) -> Self {
        Self {
            rows: vec![headings.map(str::to_owned).to_vec()],
        }
    }

    /// Rows without headings.
    pub(crate) fn bare() -> Self {
        Self { rows: Vec::new() }
    }

    /// Adds a row. What clients chose is in it, so nothing that a terminal would obey gets through.
    pub(crate) fn row<const N: usize>(&mut self, cells: [&str; N]) {
        self.rows.push(cells.map(plain).to_vec());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut widths: Vec<usize> = Vec::new();
        for row in &self.rows {
            widths.resize(widths.len().max(row.len()), 0);
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                let _ = write!(line, "{cell:<width$}  ");
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// The text with its control characters spelled out.
pub(crate) fn plain(text: &str) -> String {
    text.chars()
        .map(|char| {
            if char.is_control() {
                char.escape_default().to_string()
            } else {
                char.to_string()
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_under_each_other() {
        let mut table = Table::new(["ID", "PHASE"]);
        table.row(["0123456789", "done"]);
        table.row(["ä", "in_doubt"]);
        assert_eq!(
            table.to_string(),
            "ID          PHASE\n0123456789  done\nä           in_doubt\n"
        );
    }

    #[test]
    fn a_cell_cannot_command_the_terminal() {
        let mut table = Table::bare();
        table.row(["\u{1b}[2Jgone\n", "next"]);
        assert_eq!(table.to_string(), "\\u{1b}[2Jgone\\n  next\n");
    }
}
