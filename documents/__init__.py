"""The documents: pages that are written from the code, README's figures, and what the site needs beside `docs/`. No part of the wheel."""
