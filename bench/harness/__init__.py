"""What every measure uses: programs in processes of their own, memory that they share, figures, tables, the machine."""
