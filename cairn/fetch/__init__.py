"""Downloads: published files brought into a folder, resumed where they broke off, and checked."""
