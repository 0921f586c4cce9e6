// winnow's command line.

int main() { return 0; }
