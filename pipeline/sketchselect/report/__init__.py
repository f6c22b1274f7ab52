"""Report of a finished run: one self-contained HTML page, drawn from the files of its folder."""
